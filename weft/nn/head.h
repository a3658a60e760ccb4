// The end of a model: final norm and output projection, with the loss or the logits.
#pragma once

#include "weft/base/config.h"
#include "weft/nn/layers.h"
#include "weft/ops/cross_entropy.h"

namespace weft {

class Head {
 public:
  /// `embedding`: the matrix that the projection shares where model.tie_embeddings.
  Head(const ModelConfig& model, Param& embedding, ParamUnit& unit);

  /// Of the labels of the pass, x [tokens outside, dim]. The soft-cap is the model's.
  CrossEntropyOutput loss(const at::Tensor& x, const PassContext& context, double normaliser,
                          CrossEntropyOptions options) const;
  at::Tensor logits(const at::Tensor& x, const TensorParallel& tp) const;  // [tokens, vocab]

  Param& weight() const { return *weight_; }

 private:
  at::Tensor input(const at::Tensor& x) const;  // what the projection takes: normed, scaled

  double multiplier_, softcap_;
  Norm norm_;
  Param* weight_;
};

}  // namespace weft
