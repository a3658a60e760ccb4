// Linear, embedding: the ops that multiply by or look up in a weight.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/param/param.h"

namespace weft {

/// y = x W^T + b. x [tokens, in], each weight [out_i, in], each bias [out_i] (none: empty) -> [tokens, sum of
/// out_i]. Several weights lie side by side in their unit and take one GEMM.
at::Tensor linear(const at::Tensor& x, const std::vector<Param*>& weights,
                  const std::vector<Param*>& biases = {});

/// Rows of `table` [vocab, dim], times `multiplier`. ids [tokens] int64 -> [tokens, dim].
at::Tensor embedding(const at::Tensor& ids, Param& table, double multiplier = 1);

}  // namespace weft
