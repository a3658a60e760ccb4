// Block: what stands between two activations of the model, the embedding or a layer. The decoder walks its
// blocks, gathers each one's unit, and recomputes and reduces it: a block is only params and a forward pass.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/nn/micro_batch.h"
#include "weft/ops/dropout.h"
#include "weft/ops/rope.h"
#include "weft/ops/tensor_parallel.h"

namespace weft {

/// Keys and values of the tokens seen so far, of one layer: [capacity, n_kv_heads, head_dim] each.
struct KvCache {
  at::Tensor k, v;
  int64_t length = 0;
};

/// What all blocks share in one pass over a micro-batch.
struct PassContext {
  const MicroBatch& batch;
  TensorParallel tp;
  at::Tensor index;  // batch.index of the tokens that this rank has outside the tensor-parallel regions
  RopeTable rope_full, rope_sliding;
  bool training = false;  // dropout on
  uint64_t seed = 0;
  int64_t step = 0;
  std::vector<KvCache>* caches =
      nullptr;  // generation: one per layer; the batch is one document's next tokens
};

class Block {
 public:
  virtual ~Block() = default;

  /// x [tokens, dim], of the tokens that this rank has outside the tensor-parallel regions -> the same. The
  /// first block is given no x, but reads batch.tokens.
  virtual at::Tensor forward(const at::Tensor& x, const PassContext& context) const = 0;

  /// In generation, does it know earlier tokens from context.caches, or from nothing, as its output depends
  /// on none? Otherwise it is given all tokens for each new one.
  virtual bool takes_next_tokens() const { return false; }

  /// Does backward need the unit's weights?
  virtual bool backward_reads_weights() const { return true; }

  /// FLOPs per token of forward that are no product with a weight.
  virtual double flops_per_token(int64_t /*seq_len*/) const { return 0; }
};

}  // namespace weft
