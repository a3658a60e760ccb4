// Linear, embedding: the ops that multiply by or look up in a weight, alone or each tensor-parallel rank with
// its piece.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/ops/tensor_parallel.h"
#include "weft/param/param.h"

namespace weft {

/// Column linear: y = x W^T + b, of which each rank has its output features. x [tokens outside, in], each
/// weight [out_i, in], each bias [out_i] (none: empty) -> [tokens, sum of local out_i]. Several weights lie
/// side by side in their unit and take one GEMM. Backward gathers x again rather than keep it whole.
at::Tensor column_linear(const at::Tensor& x, const std::vector<Param*>& weights,
                         const std::vector<Param*>& biases, const TensorParallel& tp = {});

/// Row linear: the same product, of which each rank has some input features; the bias, whole on every rank,
/// is added once, to the ranks' sum. x [tokens, local in] -> [tokens outside, out].
at::Tensor row_linear(const at::Tensor& x, const std::vector<Param*>& weights,
                      const std::vector<Param*>& biases, const TensorParallel& tp = {});

/// Rows of `table` [vocab, dim], of which each rank has some, times `multiplier`. ids [tokens] int64 ->
/// [tokens outside, dim].
at::Tensor embedding(const at::Tensor& ids, Param& table, double multiplier = 1,
                     const TensorParallel& tp = {});

}  // namespace weft
