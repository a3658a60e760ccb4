// Rotary position embedding (Su et al. 2021) in the half-rotated layout of HuggingFace: dims i and i +
// head_dim/2 turn together by position * frequency_i. Scaling of the frequencies: linear (Chen et al. 2023),
// llama3 (Llama 3.1), yarn (Peng et al. 2023).
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/config.h"

namespace weft {

/// The angles' rates, and what cos and sin are multiplied by (yarn's attention factor, else 1).
struct RopeFrequencies {
  std::vector<double> inverse;  // [head_dim / 2], radians per position
  double scale = 1;
};

/// The frequencies of a layer of `type` ("full" or "sliding") of a resolved model, in fp64.
RopeFrequencies rope_frequencies(const ModelConfig& model, const std::string& type);

/// cos and sin of the angles at `positions` [tokens], each [tokens, head_dim / 2], computed in fp64 and
/// rounded.
struct RopeTable {
  at::Tensor cos, sin;
};
RopeTable rope_table(const RopeFrequencies& frequencies, const at::Tensor& positions, at::ScalarType dtype);

/// Turns the first `n_rotated` heads (q and k); the rest (v) pass through. qkv [tokens, heads, head_dim].
at::Tensor rope(const at::Tensor& qkv, int64_t n_rotated, const RopeTable& table);

}  // namespace weft
