#include "weft/comm/mesh.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"

namespace weft {
namespace {

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= number; ++d)
    if (number % d == 0) found.push_back(d);
  return found;
}

}  // namespace

std::string to_string(Axis axis) {
  static const char* const names[] = {"pp", "dp_replicate", "dp_shard", "cp", "tp"};
  return names[size_t(axis)];
}

std::string to_string(const Axes& axes) {
  std::vector<std::string> names;
  for (const Axis axis : axes) names.push_back(to_string(axis));
  return fmt::format("{}", fmt::join(names, " x "));
}

Mesh::Mesh(const ParallelConfig& parallel, int64_t ranks) : ranks_(ranks) {
  std::vector<std::string> problems;
  int64_t known = 1;  // the product of the sizes that are given
  const auto enter = [&](Axis axis, int64_t size) {
    sizes_[size_t(axis)] = size;
    if (size == -1) return;
    known *= size;
    if (ranks % size != 0)
      problems.push_back(fmt::format("parallel.{} = {} does not divide {} ranks: {} would", to_string(axis),
                                     size, ranks, fmt::join(divisors(ranks), ", ")));
  };
  enter(Axis::dp_replicate, parallel.dp_replicate);
  enter(Axis::dp_shard, parallel.dp_shard);
  enter(Axis::tp, parallel.tp);
  int64_t& dp_shard = sizes_[size_t(Axis::dp_shard)];
  if (problems.empty() && dp_shard == -1 && ranks % known == 0) dp_shard = ranks / known, known = ranks;
  if (problems.empty() && known != ranks) {
    std::vector<std::string> names, sizes, remedies;
    for (const Axis axis : {Axis::dp_shard, Axis::dp_replicate, Axis::tp}) {
      const int64_t others = dp_shard == -1 ? known : known / size(axis);
      if (axis != Axis::dp_shard || dp_shard != -1)
        names.push_back(to_string(axis)), sizes.push_back(std::to_string(size(axis)));
      if (ranks % others == 0)
        remedies.push_back(fmt::format("{} = {}{}", to_string(axis), ranks / others,
                                       axis == Axis::dp_shard ? " (or -1)" : ""));
    }
    problems.push_back(fmt::format(
        "parallel.{} = {} = {}, and there are {} ranks{}{}", fmt::join(names, " x "), fmt::join(sizes, " x "),
        known, ranks, remedies.empty() ? "" : ": it would fit with ", fmt::join(remedies, ", or ")));
  }
  if (!problems.empty()) fail("the mesh does not fit {} ranks:\n  {}", ranks, fmt::join(problems, "\n  "));
}

int64_t Mesh::size(const Axes& axes) const {
  int64_t product = 1;
  for (const Axis axis : axes) product *= size(axis);
  return product;
}

int64_t Mesh::coordinate(int64_t rank, Axis axis) const {
  for (auto inner = size_t(axis) + 1; inner < kAxes.size(); ++inner) rank /= sizes_[inner];
  return rank % size(axis);
}

int64_t Mesh::coordinate(int64_t rank, const Axes& axes) const {
  int64_t place = 0;
  for (const Axis axis : axes) place = place * size(axis) + coordinate(rank, axis);
  return place;
}

std::vector<int64_t> Mesh::group(int64_t rank, const Axes& axes) const {
  std::vector<int64_t> members{rank};
  int64_t stride = ranks_;
  for (const Axis axis : kAxes) {  // outermost first, so that members come in ascending order
    stride /= size(axis);
    if (!axes.contains(axis)) continue;
    std::vector<int64_t> wider;
    for (const int64_t member : members)
      for (int64_t place = 0; place < size(axis); ++place)
        wider.push_back(member + (place - coordinate(rank, axis)) * stride);
    members = std::move(wider);
  }
  return members;
}

std::vector<std::vector<int64_t>> Mesh::groups(const Axes& axes) const {
  std::vector<std::vector<int64_t>> all;
  for (int64_t rank = 0; rank < ranks_; ++rank)
    if (coordinate(rank, axes) == 0) all.push_back(group(rank, axes));
  return all;
}

}  // namespace weft
