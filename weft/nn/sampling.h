// Picking the next token from its logits.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace weft {

struct SamplingOptions {
  double temperature = 1;  // 0: the most likely token
  int64_t top_k = 0;       // only the k most likely; 0: all
  double top_p = 1;  // only the most likely ones that together reach this probability (Holtzman et al. 2020)
  uint64_t seed = 0;
};

/// A token drawn from logits [vocab]; the draw is f(seed, position). Ties go to the lower id.
int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options, int64_t position);

}  // namespace weft
