// Sums over ranks, whose bits depend on nothing but the summands.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/comm/group.h"

namespace weft {

/// output = pieces[0] + pieces[1] + … in this order, or their maximum; output may be one of them. Half
/// precision is summed in fp32.
void ordered_sum(const at::Tensor& output, const std::vector<at::Tensor>& pieces, ReduceOp op);

/// Elements [bounds[r], bounds[r + 1]) are rank r's piece.
inline std::vector<int64_t> even_bounds(int64_t numel, int size) {
  std::vector<int64_t> bounds;
  for (int rank = 0; rank <= size; ++rank) bounds.push_back(numel * rank / size);
  return bounds;
}

}  // namespace weft
