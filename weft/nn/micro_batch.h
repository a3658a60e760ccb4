// A micro-batch is flat: one row of tokens with document boundaries. This form covers packing, ragged batches
// and any length; padding is tokens whose label is ignored.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace weft {

struct MicroBatch {
  at::Tensor tokens;     // [tokens] int64
  at::Tensor labels;     // [tokens] int64; kIgnoredLabel where there is no target
  at::Tensor positions;  // [tokens] int64, from 0 in each document
  at::Tensor index;      // [tokens] int64: index in the global batch of this step; randomness is drawn by it
  std::vector<int64_t> cu_seqlens;  // document boundaries: 0, …, tokens
};

/// The batch, followed by a document of ignored tokens that makes the number of tokens a multiple.
MicroBatch padded(const MicroBatch& batch, int64_t multiple);

/// ids [rows, length] int64 as one micro-batch: each row is a document, each token's label the one behind it,
/// and the last token of a row has no target.
MicroBatch micro_batch_of_rows(const at::Tensor& ids);

}  // namespace weft
