// Dropout whose mask is f(key, global element index), with the key f(seed, step, site): the same mask in
// forward, backward and recomputation and on any layout, with no generator state.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace weft {

/// A site's randomness in one step. p = 0: off.
struct Dropout {
  double p = 0;
  uint64_t key = 0;

  /// An element with 32 random bits below this is dropped.
  uint64_t threshold() const { return uint64_t(p * 0x1p32); }
};

/// The key of one site ("layers.3.attention") in one step.
uint64_t random_key(uint64_t seed, int64_t step, std::string_view site);

/// x / (1 - p) where kept, else 0. x [tokens, dim]; index [tokens]: global token indices, int64.
at::Tensor dropout(const at::Tensor& x, const Dropout& dropout, const at::Tensor& index);

}  // namespace weft
