// The decoder: embedding, layers, head; and the passes over a micro-batch. Each block is a small autograd
// graph of its own, walked by plain code: forward keeps each block's input and output, backward takes the
// blocks in reverse.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/config.h"
#include "weft/nn/layers.h"
#include "weft/nn/micro_batch.h"
#include "weft/ops/cross_entropy.h"
#include "weft/parallel/data_parallel.h"
#include "weft/param/param_unit.h"

namespace weft {

class Decoder {
 public:
  /// `model` must be resolved and its vocab_size known. Weights are zero until initialise() or a load. Throws
  /// Error if they cannot fit this machine.
  Decoder(const ModelConfig& model, const Dtypes& dtypes, const ParallelConfig& parallel, MeshGroups& groups);

  /// Of this process alone.
  Decoder(const ModelConfig& model, at::ScalarType dtype);

  void initialise(uint64_t seed);

  DataParallel& data_parallel() { return *data_parallel_; }

  /// From now on a layer's activations are not kept, but computed again before its backward.
  void recompute_blocks() { recompute_ = true; }

  const ModelConfig& model() const { return model_; }
  const std::vector<std::unique_ptr<ParamUnit>>& units() const { return units_; }  // embedding, layers, head
  std::vector<Param*> params() const;                                              // of all units, in order
  int64_t numel() const;

  /// Is the param only ever looked up in, never multiplied by?
  bool is_table(const Param& param) const {
    return &param == positions_ || (&param == embedding_ && embedding_ != head_);
  }
  /// The units whose weights two blocks use.
  std::vector<ParamUnit*> tied_units() const;
  /// The first of units() with a trainable param: no unit below it takes part in backward.
  size_t first_trainable_unit() const;

  /// Adds the micro-batch's gradients and returns its share of the loss, normaliser * sum of token losses.
  /// `seed` and `step` key the dropout; the logits' soft-cap is the model's. `last_of_step`: it is the step's
  /// last, so gradients are on their way to the shards when this returns (DataParallel::finish_reductions
  /// waits for them).
  double forward_backward(const MicroBatch& batch, double normaliser, CrossEntropyOptions loss, uint64_t seed,
                          int64_t step, bool last_of_step = true);

  /// The same share of the loss, without dropout and gradients.
  double loss(const MicroBatch& batch, double normaliser, int64_t chunk);

  /// [tokens, vocab], without gradients.
  at::Tensor logits(const MicroBatch& batch);

  /// Generation: empty caches for up to `capacity` tokens (Error if the model has fewer positions), and one
  /// step: appends `tokens` [n] of one sequence and returns the logits [vocab] of the next.
  std::vector<KvCache> make_caches(int64_t capacity) const;
  at::Tensor next_logits(const at::Tensor& tokens, std::vector<KvCache>& caches);

 private:
  // Error if the weights and gradients of the ranks on this machine cannot fit.
  void check_memory(const ParallelConfig& parallel, const Mesh& mesh) const;
  // The units whose weights block 0 (embedding), 1, … (layers) or the last (head) computes with.
  size_t head_block() const { return units_.size() - 1; }
  std::vector<ParamUnit*> units_of(size_t block) const;
  TensorParallel whole_tokens() const {
    return {tp_.group};
  }                                         // no sequence parallelism: any number of tokens
  void check_length(int64_t length) const;  // Error if there are too few learned positions
  PassContext context(const MicroBatch& batch, const TensorParallel& tp) const;
  at::Tensor embed(const PassContext& context) const;
  at::Tensor head_input(const at::Tensor& x) const;  // what the output projection takes: normed, scaled
  CrossEntropyOutput head_loss(const at::Tensor& x, const PassContext& context, double normaliser,
                               const CrossEntropyOptions& options) const;
  at::Tensor head_logits(const at::Tensor& x, const TensorParallel& tp) const;
  at::Tensor run(const PassContext& context) const;  // embedding and layers, no gradients

  ModelConfig model_;
  at::ScalarType dtype_;  // of activations
  TensorParallel tp_;
  bool recompute_ = false;
  std::vector<std::unique_ptr<ParamUnit>> units_;
  std::unique_ptr<DataParallel> data_parallel_;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  Param* embedding_;
  Param* positions_ = nullptr;  // learned positions only
  std::optional<Norm> embedding_norm_, final_norm_;
  Param* head_;  // the embedding where tied
};

}  // namespace weft
