#include "weft/param/param.h"

#include <numeric>

#include <ATen/ATen.h>

#include "weft/base/error.h"
#include "weft/param/param_unit.h"

namespace weft {
namespace {

int64_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

at::Tensor fused(const std::vector<Param*>& params, const at::Tensor& buffer) {
  const Param& first = *params.front();
  int64_t rows = 0, end = first.offset();
  for (const Param* param : params) {
    WEFT_ASSERT(&param->unit() == &first.unit() && param->offset() == end,
                "{} does not lie behind its neighbour", param->name());
    rows += param->shape()[0];
    end += param->numel();
  }
  std::vector<int64_t> shape = first.shape();
  shape[0] = rows;
  return buffer.narrow(0, first.offset(), end - first.offset()).view(shape);
}

}  // namespace

Param::Param(ParamSpec spec, ParamUnit* unit, int64_t offset)
    : spec_(std::move(spec)), unit_(unit), offset_(offset), numel_(product(spec_.shape)) {}

at::Tensor Param::view_of(const at::Tensor& flat) const {
  return flat.narrow(0, offset_, numel_).view(shape());
}
at::Tensor Param::weight() const { return view_of(unit_->weights()); }
at::Tensor Param::grad() const { return view_of(unit_->grads()); }

at::Tensor fused_weight(const std::vector<Param*>& params) {
  return fused(params, params.front()->unit().weights());
}
at::Tensor fused_grad(const std::vector<Param*>& params) {
  return fused(params, params.front()->unit().grads());
}

}  // namespace weft
