// The output projection fused with cross-entropy: logits exist for one chunk of tokens at a time, and their
// gradient is made in the same pass, so full logits are never stored (and the head never needs
// recomputation).
#pragma once

#include <ATen/core/Tensor.h>

#include "weft/ops/tensor_parallel.h"
#include "weft/param/param.h"

namespace weft {

constexpr int64_t kIgnoredLabel = -100;

struct CrossEntropyOptions {
  double softcap = 0;  // logits -> softcap tanh(logits / softcap); 0: off
  double z_loss = 0;   // adds z_loss * log-sum-exp^2 per target (PaLM)
  int64_t chunk = 0;   // tokens whose logits exist at once; 0: about 16 MB of them
};

struct CrossEntropyOutput {
  at::Tensor
      total;  // []: normaliser * (sum of token losses + z-losses); what backward starts from, with gradient 1
  at::Tensor loss;  // [] fp64: normaliser * sum of token losses alone; not differentiable
};

/// h [tokens outside, dim], head [vocab, dim], labels [tokens] int64 (negative: ignored). `normaliser` is 1 /
/// (targets of the whole global batch). When a backward follows, the head's weight gradient is added right
/// here. Each tensor-parallel rank has the logits of its part of the vocabulary; all get the whole loss.
CrossEntropyOutput cross_entropy(const at::Tensor& h, Param& head, const at::Tensor& labels,
                                 double normaliser, const CrossEntropyOptions& options,
                                 const TensorParallel& tp = {});

/// The same head without the loss: [tokens, vocab], on every rank. Not differentiable.
at::Tensor logits(const at::Tensor& h, Param& head, double softcap, const TensorParallel& tp = {});

}  // namespace weft
