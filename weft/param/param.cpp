#include "weft/param/param.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

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
    rows += param->local_shape()[0];
    end += param->numel();
  }
  std::vector<int64_t> shape = first.local_shape();
  shape[0] = rows;
  return buffer.narrow(0, first.offset(), end - first.offset()).view(shape);
}

}  // namespace

Param::Param(ParamSpec spec, ParamUnit* unit, int64_t offset)
    : spec_(std::move(spec)), unit_(unit), offset_(offset), local_shape_(spec_.shape) {
  piece_ = whole_box(spec_.shape);
  const TensorPlace& place = unit->tensor_place();
  const Placement& placement = spec_.placement;
  if (placement.kind == Placement::Kind::Shard && place.size > 1) {
    const auto dim = size_t(placement.dim);
    const int64_t whole = spec_.shape[dim], pieces = place.size / placement.copies;
    const int64_t each = (whole + pieces - 1) / pieces;
    if (place.size % placement.copies != 0 || (dim > 0 && whole % pieces != 0))
      fail("parallel.tp = {} does not divide {} [{}]: dim {} is split, each piece {}", place.size, spec_.name,
           fmt::join(spec_.shape, ", "), dim,
           placement.copies == 1 ? "on one rank" : fmt::format("on {} ranks", placement.copies));
    local_shape_[dim] = each;
    piece_.begin[dim] = std::min(place.rank / placement.copies * each, whole);
    piece_.end[dim] = std::min(piece_.begin[dim] + each, whole);
  }
  numel_ = product(local_shape_);
}

int64_t Param::global_numel() const { return product(spec_.shape); }

int64_t Param::copies() const {
  const bool sharded = spec_.placement.kind == Placement::Kind::Shard;
  return sharded ? spec_.placement.copies : unit_->tensor_place().size;
}

bool Param::is_first_copy() const { return unit_->tensor_place().rank % copies() == 0; }

std::vector<std::pair<int64_t, Box>> Param::boxes(int64_t begin, int64_t end) const {
  std::vector<std::pair<int64_t, Box>> all;
  for (Box& box : boxes_of_range(local_shape_, begin, end)) {
    const int64_t first = begin;
    begin += box.numel();
    for (size_t dim = 0; dim < box.begin.size(); ++dim)
      for (int64_t* bound : {&box.begin[dim], &box.end[dim]})
        *bound = std::min(*bound + piece_.begin[dim], piece_.end[dim]);
    if (box.numel() > 0) all.emplace_back(first, std::move(box));
  }
  return all;
}

at::Tensor Param::view_of(const at::Tensor& flat) const {
  return flat.narrow(0, offset_, numel_).view(local_shape_);
}

at::Tensor narrowed(at::Tensor tensor, const Box& outer, const Box& inner) {
  for (size_t dim = 0; dim < outer.begin.size(); ++dim)
    tensor =
        tensor.narrow(int64_t(dim), inner.begin[dim] - outer.begin[dim], inner.end[dim] - inner.begin[dim]);
  return tensor;
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
