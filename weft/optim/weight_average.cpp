#include "weft/optim/weight_average.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "weft/base/trace.h"

namespace weft {

WeightAverage::WeightAverage(double decay, const std::vector<std::unique_ptr<ParamUnit>>& units)
    : decay_(decay) {
  for (const auto& unit : units) {
    const at::Tensor& master = unit->shard().master;
    averages_.push_back(
        {unit.get(), counted_zeros(MemoryKind::optimizer, master.numel(), master.scalar_type())});
  }
}

void WeightAverage::start() {
  for (UnitAverage& of_unit : averages_) of_unit.average.copy_(of_unit.unit->shard().master);
}

void WeightAverage::update() {
  const Span span(SpanLevel::phase, "weight_average", SpanKind::optimizer);
  // lerp adds a multiple of the difference, so the average of weights that never change keeps their bits.
  for (UnitAverage& of_unit : averages_) of_unit.average.lerp_(of_unit.unit->shard().master, 1 - decay_);
}

at::Tensor WeightAverage::of(const ParamUnit& unit) const {
  return std::ranges::find_if(averages_, [&](const UnitAverage& a) { return a.unit == &unit; })->average;
}

void WeightAverage::swap() {
  for (UnitAverage& of_unit : averages_) {
    // The contents change places: the master may be a view of the unit's weights.
    const at::Tensor master = of_unit.unit->shard().master, kept = master.clone();
    master.copy_(of_unit.average);
    of_unit.average.copy_(kept);
  }
}

}  // namespace weft
