// Rotary position embedding (Su et al. 2021) in the half-rotated layout of HuggingFace: dims i and i +
// rope_dim/2 turn together by position * frequency_i; dims from rope_dim on do not turn. Scaling of the
// frequencies: linear (Chen et al. 2023), dynamic (dynamic NTK, as in HuggingFace), llama3 (Llama 3.1), yarn
// (Peng et al. 2023), longrope (Ding et al. 2024).
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/config.h"

namespace weft {

/// The angles' rates, and what cos and sin are multiplied by (the attention factor of yarn and longrope, else
/// 1).
struct RopeFrequencies {
  std::vector<double> inverse;  // [rope_dim / 2], radians per position
  double scale = 1;
};

/// The frequencies of a layer of `type` ("full" or "sliding") of a resolved model, in fp64, in a document of
/// `length` tokens, which matters to "dynamic" and "longrope" only.
RopeFrequencies rope_frequencies(const ModelConfig& model, const std::string& type, int64_t length = 0);

/// cos and sin of the angles, each [tokens, rope_dim / 2], computed in fp64 and rounded.
struct RopeTable {
  at::Tensor cos, sin;
};
/// At `positions` [tokens] that all have the same frequencies.
RopeTable rope_table(const RopeFrequencies& frequencies, const at::Tensor& positions, at::ScalarType dtype);
/// At the positions of a flat micro-batch, whose document d is tokens [cu_seqlens[d], cu_seqlens[d + 1]). A
/// document is as long as its last position says, so a curve does not depend on how documents are packed.
RopeTable rope_table(const ModelConfig& model, const std::string& type, const at::Tensor& positions,
                     const std::vector<int64_t>& cu_seqlens, at::ScalarType dtype);

/// Turns the first `n_rotated` heads (q and k); the rest (v) pass through. qkv [tokens, heads, head_dim].
at::Tensor rope(const at::Tensor& qkv, int64_t n_rotated, const RopeTable& table);

}  // namespace weft
