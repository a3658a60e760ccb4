#include "weft/nn/activation_cost.h"

#include <algorithm>

namespace weft {

std::map<std::string, double> kept_per_token(const ModelConfig& model, const TensorPlace& place) {
  const auto tp = double(place.size);
  const double outside = double(model.dim) / (place.sequence_parallel ? tp : 1);
  const double q = double(model.n_heads * model.head_dim) / tp;
  const double k = double(std::max(model.n_kv_heads, place.size) * model.head_dim) / tp;
  const double ffn = double(model.ffn_dim) / tp;

  std::map<std::string, double> kept;
  const std::string norm = model.norm == "layernorm" ? "layer_norm" : "rms_norm";
  // Norms keep their inputs, which two parallel ones share; qkv and up keep theirs, which may be one.
  const double norms = model.block != "sequential" ? 1 : model.norm_placement == "sandwich" ? 4 : 2;
  const double inputs = model.block == "parallel_shared_norm" ? 1 : 2;
  kept[norm] = norms * outside;
  kept["linear"] = inputs * outside + ffn;  // ffn: of down; that of o is attention's output
  if (model.qk_norm != "none") kept["qk_norm"] = q + 2 * k;
  kept["attention"] = (q + 2 * k) + q + double(model.n_heads) / tp;  // qkv, output, log-sum-exp
  const bool silu = model.activation == "silu";
  if (model.mlp == "gated")
    kept[silu ? "swiglu" : "geglu"] = 2 * ffn;
  else
    kept[silu ? "silu" : "gelu"] = ffn;
  return kept;
}

}  // namespace weft
