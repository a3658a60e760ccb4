// What a token costs, and what this machine can do: the two numbers of MFU.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "weft/base/config.h"
#include "weft/base/env.h"
#include "weft/nn/decoder.h"

namespace weft {

/// FLOPs of forward and backward per token: 6 per weight that is multiplied (the embedding look-up is not; a
/// frozen weight takes 4, or 2 where nothing below it is trained), and causal attention counted half (PaLM,
/// appendix B, with the causal half left out).
double model_flops_per_token(const Decoder& decoder, int64_t seq_len);

/// FLOP/s of the best square GEMM in `dtype` on the threads in use. Measured in under 0.3 s, and cached in
/// the user's cache directory per CPU model, dtype and thread count.
double gemm_peak(Env& env, at::ScalarType dtype);

}  // namespace weft
