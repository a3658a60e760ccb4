#include "weft/parallel/partial_gradients.h"

#include <ATen/ATen.h>

#include "weft/base/trace.h"
#include "weft/comm/dropped_sum.h"

namespace weft {
namespace {

/// How many neighbours along tp hold a part of the param's gradient: 1 if this rank has all of it.
int64_t holders(const Param& param, int64_t tp) {
  if (!param.trainable()) return 1;
  if (param.spec().partial.contains(Axis::tp)) return tp;
  return param.spec().placement.kind == Placement::Kind::Shard ? param.copies() : 1;
}

/// "q_norm over tp" leaves out the sums of all params of that name.
bool is_dropped(const Param& param) {
  const std::string& sum = dropped_sum();
  const size_t end = sum.find(" over tp");
  return end != std::string::npos && param.name().find(sum.substr(0, end)) != std::string::npos;
}

/// Calls visit(gradient) for what this rank's shard has of each param of which `count` ranks hold a part.
template <class Visit>
void for_partial(const ParamUnit& unit, int64_t count, const Visit& visit) {
  const Shard& shard = unit.shard();
  unit.for_params_in(shard.begin, shard.end(), [&](const Param& param, int64_t begin, int64_t end) {
    if (begin < end && holders(param, unit.tensor_place().size) == count && !is_dropped(param))
      visit(shard.part_of(shard.grad, param, begin, end));
  });
}

}  // namespace

void sum_partial_gradients(const std::vector<std::unique_ptr<ParamUnit>>& units, MeshGroups& groups) {
  const int64_t tp = groups.mesh().size(Axis::tp);
  if (tp == 1) return;
  const Span span(SpanLevel::phase, "partial_gradients", SpanKind::optimizer);
  for (int64_t count = 2; count <= tp; ++count) {
    std::vector<at::Tensor> parts;
    for (const auto& unit : units)
      for_partial(*unit, count, [&](const at::Tensor& gradient) { parts.push_back(gradient); });
    if (parts.empty()) continue;
    const at::Tensor packed = at::cat(parts).to(units.front()->dtypes().reduce);
    groups.neighbours(Axis::tp, count).all_reduce(packed).wait();
    int64_t begin = 0;
    for (at::Tensor& part : parts) {
      part.copy_(packed.narrow(0, begin, part.numel()));
      begin += part.numel();
    }
  }
}

int64_t partial_numel(const ParamUnit& unit, int64_t count) {
  int64_t sum = 0;
  for_partial(unit, count, [&](const at::Tensor& gradient) { sum += gradient.numel(); });
  return sum;
}

}  // namespace weft
