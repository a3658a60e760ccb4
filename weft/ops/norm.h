// Norms over the last dim. RMSNorm (Zhang & Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * gain. LayerNorm
// (Ba et al. 2016): y = (x - mean(x)) / sqrt(var(x) + eps) * gain + bias. The gain is w, or 1 + w in the
// unit-offset form (Gemma).
#pragma once

#include <ATen/core/Tensor.h>

#include "weft/ops/tensor_parallel.h"
#include "weft/param/param.h"

namespace weft {

struct NormOptions {
  double eps = 1e-5;
  bool unit_offset = false;
};

struct NormOutput {
  at::Tensor y;         // the normalised sum
  at::Tensor residual;  // x + residual: what the next residual connection adds to
};

/// Norm of x + residual (residual undefined: of x). x [tokens, dim], gain and bias [dim].
NormOutput rms_norm(const at::Tensor& x, Param& gain, const NormOptions& options,
                    const at::Tensor& residual = {});
NormOutput layer_norm(const at::Tensor& x, Param& gain, Param& bias, const NormOptions& options,
                      const at::Tensor& residual = {});

/// RMSNorm of the first q_heads heads with q_gain and of the next k_heads with k_gain; the rest pass through.
/// A gain [head_dim] norms each head by itself, a gain [heads * head_dim] all heads, those of all
/// tensor-parallel ranks, as one vector. qkv [tokens, heads, head_dim].
at::Tensor qk_norm(const at::Tensor& qkv, int64_t q_heads, int64_t k_heads, Param& q_gain, Param& k_gain,
                   const NormOptions& options, const TensorParallel& tp = {});

}  // namespace weft
