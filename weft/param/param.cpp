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

/// `buffer`, which must be there now.
const at::Tensor& whole(const Param& param, const at::Tensor& buffer, const char* what) {
  WEFT_ASSERT(buffer.defined(), "{} is used while unit {} has no {}", param.name(), param.unit().name(),
              what);
  return buffer;
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
at::Tensor Param::weight() const { return view_of(whole(*this, unit_->weights(), "gathered weights")); }
at::Tensor Param::grad() const { return view_of(whole(*this, unit_->grads(), "gradient buffer")); }

at::Tensor fused_weight(const std::vector<Param*>& params) {
  const Param& first = *params.front();
  return fused(params, whole(first, first.unit().weights(), "gathered weights"));
}
at::Tensor fused_grad(const std::vector<Param*>& params) {
  const Param& first = *params.front();
  return fused(params, whole(first, first.unit().grads(), "gradient buffer"));
}

void add_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  if (sum.scalar_type() == a.scalar_type())
    sum.addmm_(a, b);
  else
    sum.add_(at::mm(a, b));
}

}  // namespace weft
