#include "weft/optim/weight_average.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "weft/base/trace.h"

namespace weft {

WeightAverage::WeightAverage(double decay, const std::vector<std::unique_ptr<ParamUnit>>& units)
    : decay_(decay) {
  for (const auto& unit : units) averages_.push_back({unit.get(), at::zeros_like(unit->weights())});
}

void WeightAverage::start() {
  for (UnitAverage& of_unit : averages_) of_unit.average.copy_(of_unit.unit->weights());
}

void WeightAverage::update() {
  const Span span(SpanLevel::phase, "weight_average", SpanKind::optimizer);
  // lerp adds a multiple of the difference, so the average of weights that never change keeps their bits.
  for (UnitAverage& of_unit : averages_) of_unit.average.lerp_(of_unit.unit->weights(), 1 - decay_);
}

at::Tensor WeightAverage::of(const Param& param) const {
  const auto found =
      std::ranges::find_if(averages_, [&](const UnitAverage& a) { return a.unit == &param.unit(); });
  return param.view_of(found->average);
}

void WeightAverage::swap() {
  for (UnitAverage& of_unit : averages_) std::swap(of_unit.average, of_unit.unit->weights());
}

}  // namespace weft
