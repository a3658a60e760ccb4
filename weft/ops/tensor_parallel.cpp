#include "weft/ops/tensor_parallel.h"

#include <ATen/ATen.h>

namespace weft {

Arriving TensorParallel::enter(const at::Tensor& x) const {
  if (!sequence || size() == 1) return {x, {}};
  const at::Tensor own = x.contiguous();
  const at::Tensor all = at::empty({own.size(0) * size(), own.size(1)}, own.options());
  return {all, group->all_gather(all, own)};
}

Arriving TensorParallel::leave(const at::Tensor& partial) const {
  if (size() == 1) return {partial, {}};
  if (!sequence) return {partial, group->all_reduce(partial)};
  const at::Tensor own = at::empty({partial.size(0) / size(), partial.size(1)}, partial.options());
  return {own, group->reduce_scatter(own, partial)};
}

at::Tensor TensorParallel::outside(const at::Tensor& x) const {
  if (!sequence) return x;
  const int64_t rows = x.size(0) / size();
  return x.narrow(0, rank() * rows, rows);
}

at::Tensor TensorParallel::gather(const at::Tensor& x) const {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.insert(shape.begin(), size());
  if (size() == 1) return x.view(shape);
  const at::Tensor all = at::empty(shape, x.options());
  group->all_gather(all.view({-1}), x.contiguous().view({-1})).wait();
  return all;
}

}  // namespace weft
