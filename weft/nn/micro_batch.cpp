#include "weft/nn/micro_batch.h"

#include <ATen/ATen.h>

#include "weft/ops/cross_entropy.h"

namespace weft {

MicroBatch padded(const MicroBatch& batch, int64_t multiple) {
  const int64_t missing = (multiple - batch.tokens.size(0) % multiple) % multiple;
  if (missing == 0) return batch;
  const auto extended = [&](const at::Tensor& x, int64_t value) {
    return x.defined() ? at::cat({x, at::full({missing}, value, at::kLong)}) : x;
  };
  MicroBatch result = batch;
  result.tokens = extended(batch.tokens, 0);
  result.labels = extended(batch.labels, kIgnoredLabel);
  result.positions = at::cat({batch.positions, at::arange(missing, at::kLong)});
  result.index = extended(batch.index, 0);
  result.cu_seqlens.push_back(batch.cu_seqlens.back() + missing);
  return result;
}

MicroBatch micro_batch_of_rows(const at::Tensor& ids) {
  const int64_t rows = ids.size(0), length = ids.size(1);
  at::Tensor labels = at::full({rows, length}, kIgnoredLabel, at::kLong);
  labels.narrow(1, 0, length - 1).copy_(ids.narrow(1, 1, length - 1));
  MicroBatch batch{ids.reshape({-1}),
                   labels.view({-1}),
                   at::arange(length, at::kLong).repeat({rows}),
                   at::arange(rows * length, at::kLong),
                   {}};
  for (int64_t row = 0; row <= rows; ++row) batch.cu_seqlens.push_back(row * length);
  return batch;
}

}  // namespace weft
