#include "weft/nn/head.h"

#include <ATen/ATen.h>

#include "weft/base/trace.h"
#include "weft/nn/embedding.h"

namespace weft {

Head::Head(const ModelConfig& model, Param& embedding, ParamUnit& unit)
    : multiplier_(model.logits_multiplier),
      softcap_(model.final_softcap),
      norm_(model, unit, "model.norm"),
      weight_(model.tie_embeddings ? &embedding : &unit.add(vocab_matrix(model, "lm_head.weight"))) {}

at::Tensor Head::input(const at::Tensor& x) const {
  const at::Tensor normed = norm_.forward(x);
  // Scaling dim columns here rather than vocab_size columns of logits.
  return multiplier_ == 1 ? normed : normed * multiplier_;
}

CrossEntropyOutput Head::loss(const at::Tensor& x, const PassContext& context, double normaliser,
                              CrossEntropyOptions options) const {
  const KindScope scope(SpanKind::head);
  options.softcap = softcap_;
  return cross_entropy(input(x), *weight_, context.batch.labels, normaliser, options, context.tp);
}

at::Tensor Head::logits(const at::Tensor& x, const TensorParallel& tp) const {
  return weft::logits(input(x), *weight_, softcap_, tp);
}

}  // namespace weft
