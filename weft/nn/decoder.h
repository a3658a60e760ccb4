// The decoder: the blocks and the head of an architecture, and the passes over a micro-batch. Each block is a
// small autograd graph of its own, walked by plain code: forward keeps each block's input and output,
// backward takes the blocks in reverse.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/config.h"
#include "weft/nn/architecture.h"
#include "weft/nn/micro_batch.h"
#include "weft/ops/cross_entropy.h"
#include "weft/parallel/data_parallel.h"
#include "weft/param/param_unit.h"

namespace weft {

/// What generation knows of the tokens so far.
struct Caches {
  std::vector<KvCache> layers;
  at::Tensor tokens;  // [length]
};

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
  const std::vector<std::unique_ptr<Block>>& blocks() const { return parts_.blocks(); }
  /// One for each block, and the head's.
  const std::vector<std::unique_ptr<ParamUnit>>& units() const { return units_; }
  std::vector<Param*> params() const;  // of all units, in order
  int64_t numel() const;

  /// The units whose weights two blocks use.
  std::vector<ParamUnit*> tied_units() const;
  /// The first of units() with a trainable param: no unit below it takes part in backward.
  size_t first_trainable_unit() const;

  /// Adds the micro-batch's gradients and returns its share of the loss, normaliser * sum of token losses.
  /// `seed` and `step` key the dropout; the logits' soft-cap is the model's. `last_of_step`: it is the step's
  /// last, so gradients are on their way to the shards when this returns (DataParallel::finish_reductions
  /// waits for them).
  double forward_backward(const MicroBatch& batch, double normaliser, const CrossEntropyOptions& loss,
                          uint64_t seed, int64_t step, bool last_of_step = true);

  /// The same share of the loss, without dropout and gradients.
  double loss(const MicroBatch& batch, double normaliser, int64_t chunk);

  /// [tokens, vocab], without gradients.
  at::Tensor logits(const MicroBatch& batch);

  /// Generation: empty caches for up to `capacity` tokens (Error if the model has fewer positions), and one
  /// step: appends `tokens` [n] of one sequence and returns the logits [vocab] of the next.
  Caches make_caches(int64_t capacity) const;
  at::Tensor next_logits(const at::Tensor& tokens, Caches& caches);

 private:
  // Error if the weights and gradients of the ranks on this machine cannot fit.
  void check_memory(const ParallelConfig& parallel, MeshGroups& groups) const;
  size_t head_block() const { return blocks().size(); }
  // The units whose weights a block, or behind the last one the head, computes with.
  std::vector<ParamUnit*> units_of(size_t block) const;
  TensorParallel whole_tokens() const {
    return {tp_.group};
  }  // no sequence parallelism: any number of tokens
  PassContext context(const MicroBatch& batch, const TensorParallel& tp) const;
  at::Tensor forward(size_t block, const at::Tensor& x, const PassContext& context) const;
  CrossEntropyOutput head_loss(const at::Tensor& x, const PassContext& context, double normaliser,
                               const CrossEntropyOptions& options) const;
  at::Tensor head_logits(const at::Tensor& x, const TensorParallel& tp) const;
  at::Tensor run(const PassContext& context) const;  // all blocks, no gradients

  ModelConfig model_;
  at::ScalarType dtype_;  // of activations
  TensorParallel tp_;
  bool recompute_ = false;
  std::vector<std::unique_ptr<ParamUnit>> units_;
  Architecture parts_;
  std::unique_ptr<DataParallel> data_parallel_;
};

}  // namespace weft
