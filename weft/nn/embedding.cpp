#include "weft/nn/embedding.h"

#include <ATen/ATen.h>

#include "weft/base/error.h"
#include "weft/base/trace.h"
#include "weft/ops/linear.h"

namespace weft {

ParamSpec vocab_matrix(const ModelConfig& model, const std::string& name) {
  return {.name = name,
          .shape = {model.vocab_size, model.dim},
          .init = {.std = model.init_std},
          .placement = Placement::shard(0)};
}

void check_length(const ModelConfig& model, int64_t length) {
  if (model.position == "learned" && length > model.max_positions)
    fail("{} tokens in a row, but the model has learned positions for {} only (model.max_positions)", length,
         model.max_positions);
}

Embedding::Embedding(const ModelConfig& model, ParamUnit& unit) : model_(model) {
  ParamSpec tokens = vocab_matrix(model, "model.embed_tokens.weight");
  tokens.looked_up = !model.tie_embeddings;
  tokens_ = &unit.add(tokens);
  if (model.position == "learned")
    positions_ = &unit.add(per_token({.name = "model.embed_positions.weight",
                                      .shape = {model.max_positions, model.dim},
                                      .init = {.std = model.init_std},
                                      .looked_up = true},
                                     unit));
  if (model.embedding_norm) norm_ = Norm(model, unit, "model.embed_norm");
}

at::Tensor Embedding::forward(const at::Tensor&, const PassContext& context) const {
  const KindScope scope(SpanKind::embedding);
  const MicroBatch& batch = context.batch;
  at::Tensor x = embedding(batch.tokens, *tokens_, model_.embedding_multiplier, context.tp);
  if (positions_) {
    for (size_t d = 0; d + 1 < batch.cu_seqlens.size(); ++d)
      check_length(model_, batch.cu_seqlens[d + 1] - batch.cu_seqlens[d]);
    x = x + embedding(context.tp.outside(batch.positions), *positions_);
  }
  if (norm_) x = norm_->forward(x);
  return dropout(x, dropout_at(context, model_.dropout, "embedding"), context.index);
}

}  // namespace weft
