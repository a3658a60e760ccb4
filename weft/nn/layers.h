// The layers of the decoder. Each declares its params in the unit it is given and computes its forward from
// ops; all else (gradients, initialisation, checkpoints) follows from the declarations. Activations are
// [tokens, dim].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/config.h"
#include "weft/nn/block.h"
#include "weft/ops/activation.h"
#include "weft/ops/attention.h"
#include "weft/ops/norm.h"
#include "weft/param/param_unit.h"

namespace weft {

/// The spec of a param that every tp rank applies whole to the tokens it has: with sequence parallelism its
/// gradient is partial over tp.
ParamSpec per_token(ParamSpec spec, const ParamUnit& unit);

/// Column linear: output features are split over tp. Several parts (q, k, v) lie side by side and take one
/// GEMM. Row linear: input features are split over tp; its bias is added once, after the sum.
class Linear {
 public:
  struct Part {
    std::string name;  // without ".weight"
    int64_t out;
    int64_t copies = 1;  // column: ranks that hold each piece
  };
  static Linear column(ParamUnit& unit, const std::vector<Part>& parts, int64_t in, bool bias, double std);
  static Linear row(ParamUnit& unit, const Part& part, int64_t in, bool bias, double std);

  at::Tensor forward(const at::Tensor& x, const TensorParallel& tp) const;

 private:
  Linear(ParamUnit& unit, const std::vector<Part>& parts, int64_t in, bool bias, double std, bool column);
  bool column_;
  std::vector<Param*> weights_, biases_;
};

/// RMSNorm or LayerNorm, as the model has it. Its params multiply by 1 and add 0 at first; their gradients
/// are partial over the axes whose ranks see different tokens.
class Norm {
 public:
  Norm(const ModelConfig& model, ParamUnit& unit, const std::string& name);
  at::Tensor forward(const at::Tensor& x) const { return forward(x, {}).y; }
  NormOutput forward(const at::Tensor& x, const at::Tensor& residual) const;  // of their sum

 private:
  NormOptions options_;
  Param* gain_;
  Param* bias_ = nullptr;  // LayerNorm only
};

/// Dropout at a named site of the model, on in training only.
Dropout dropout_at(const PassContext& context, double p, const std::string& site);

class Attention {
 public:
  Attention(const ModelConfig& model, int64_t layer, ParamUnit& unit);
  at::Tensor forward(const at::Tensor& x, const PassContext& context) const;

  /// Of scores and weighted values, per token: 2 each for every head dim of the keys that a query sees, half
  /// of the sequence on average.
  double flops_per_token(int64_t seq_len) const;

 private:
  // Appends this call's keys and values to the layer's cache and attends to all of it. qkv [tokens, heads,
  // head_dim].
  at::Tensor attend_with_cache(const at::Tensor& qkv, KvCache& cache) const;

  int64_t layer_, head_dim_;
  bool rotates_, sliding_;
  double dropout_;
  AttentionOptions options_;
  NormOptions norm_options_;
  Linear qkv_;
  Param* q_norm_ = nullptr;
  Param* k_norm_ = nullptr;
  Linear o_;
};

class Mlp {
 public:
  Mlp(const ModelConfig& model, int64_t layer, ParamUnit& unit);
  at::Tensor forward(const at::Tensor& x, const PassContext& context) const;

 private:
  bool gated_;
  Activation activation_;
  Linear up_, down_;  // up_ holds the gate too, where there is one
};

/// "sequential": h = x + attention(norm x), y = h + mlp(norm h); norms stand before a sub-layer ("pre"),
/// after it
/// ("post") or on both sides ("sandwich"). "parallel": y = x + attention(norm x) + mlp(norm x).
class DecoderLayer : public Block {
 public:
  DecoderLayer(const ModelConfig& model, int64_t layer, ParamUnit& unit);
  at::Tensor forward(const at::Tensor& x, const PassContext& context) const override;
  bool takes_next_tokens() const override { return true; }
  double flops_per_token(int64_t seq_len) const override { return attention_.flops_per_token(seq_len); }

 private:
  // A sub-layer's output on its way into the residual stream.
  at::Tensor branch(const at::Tensor& out, const std::optional<Norm>& post_norm, const char* site,
                    const PassContext& context) const;

  int64_t layer_;
  double dropout_, residual_multiplier_;
  bool parallel_;
  Attention attention_;
  Mlp mlp_;
  std::optional<Norm> input_norm_, post_attention_norm_, mlp_norm_, post_mlp_norm_;
};

}  // namespace weft
