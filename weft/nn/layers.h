// The layers of the decoder. Each declares its params in the unit it is given and computes its forward from
// ops; all else (gradients, initialisation, checkpoints) follows from the declarations. Activations are
// [tokens, dim].
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/config.h"
#include "weft/nn/micro_batch.h"
#include "weft/ops/activation.h"
#include "weft/ops/attention.h"
#include "weft/ops/norm.h"
#include "weft/ops/rope.h"
#include "weft/param/param_unit.h"

namespace weft {

/// Keys and values of the tokens seen so far, of one layer: [capacity, n_kv_heads, head_dim] each.
struct KvCache {
  at::Tensor k, v;
  int64_t length = 0;
};

/// What all layers share in one pass over a micro-batch.
struct PassContext {
  const MicroBatch& batch;
  RopeTable rope_full, rope_sliding;
  bool training = false;  // dropout on
  uint64_t seed = 0;
  int64_t step = 0;
  std::vector<KvCache>* caches =
      nullptr;  // generation: one per layer; the batch is one document's next tokens
};

/// Column linear: output features are split over tp. Several parts (q, k, v) lie side by side and take one
/// GEMM. Row linear: input features are split over tp; its bias is added once, after the sum.
class Linear {
 public:
  struct Part {
    std::string name;  // without ".weight"
    int64_t out;
  };
  static Linear column(ParamUnit& unit, const std::vector<Part>& parts, int64_t in, bool bias, double std);
  static Linear row(ParamUnit& unit, const Part& part, int64_t in, bool bias, double std);

  at::Tensor forward(const at::Tensor& x) const;

 private:
  Linear(ParamUnit& unit, const std::vector<Part>& parts, int64_t in, bool bias, double std, bool column);
  std::vector<Param*> weights_, biases_;
};

/// Dropout at a named site of the model, on in training only.
Dropout dropout_at(const PassContext& context, double p, const std::string& site);

class Attention {
 public:
  Attention(const ModelConfig& model, int64_t layer, ParamUnit& unit);
  at::Tensor forward(const at::Tensor& x, const PassContext& context) const;

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
  at::Tensor forward(const at::Tensor& x) const;

 private:
  Gate gate_;
  Linear gate_up_, down_;
};

/// x + attention(norm x), then + mlp(norm x); "sandwich" also norms each sub-layer's output.
class DecoderLayer {
 public:
  DecoderLayer(const ModelConfig& model, int64_t layer, ParamUnit& unit);
  at::Tensor forward(const at::Tensor& x, const PassContext& context) const;

 private:
  int64_t layer_;
  double dropout_;
  NormOptions norm_options_;
  Attention attention_;
  Mlp mlp_;
  Param *input_norm_, *mlp_norm_;
  Param *post_attention_norm_ = nullptr, *post_mlp_norm_ = nullptr;  // sandwich only
};

/// Declares the gain of a norm over `size` elements, initialised so that it multiplies by 1; its gradient is
/// partial over the data axes, and over `also_partial`.
Param& declare_norm(const ModelConfig& model, ParamUnit& unit, const std::string& name, int64_t size,
                    const std::set<Axis>& also_partial = {});

}  // namespace weft
