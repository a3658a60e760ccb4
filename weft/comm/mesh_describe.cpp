// What `weft mesh` prints.
#include <algorithm>

#include <fmt/format.h>

#include "weft/comm/mesh.h"

namespace weft {
namespace {

constexpr int64_t kMostLines = 32;     // of the table of ranks
constexpr size_t kMostGroups = 4;      // of one kind that are shown
constexpr int64_t kMostRanksEach = 8;  // of one group that are shown, unless they are a range

/// "{0-7}", "{0, 8, 16, 24}", "{0, 16, 32, … 1008}".
std::string short_list(const std::vector<int64_t>& ranks) {
  const auto count = int64_t(ranks.size());
  if (count > 2 && ranks.back() - ranks.front() == count - 1)
    return fmt::format("{{{}-{}}}", ranks.front(), ranks.back());
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    const bool left_out = count > kMostRanksEach && i >= 3 && i < count - 1;
    if (left_out && i == 3) text += ", …";
    if (!left_out)
      text += (i == 0                            ? ""
               : left_out                        ? ""
               : count > kMostRanksEach && i > 3 ? " "
                                                 : ", ") +
              std::to_string(ranks[size_t(i)]);
  }
  return "{" + text + "}";
}

/// The axes along which the mesh extends; a mesh of one rank has a dp_shard axis of one.
std::vector<Axis> axes_in_use(const Mesh& mesh) {
  std::vector<Axis> axes;
  for (const Axis axis : kAxes)
    if (mesh.size(axis) > 1) axes.push_back(axis);
  if (axes.empty()) axes.push_back(Axis::dp_shard);
  return axes;
}

/// Who is where: a line a rank, or, where that is too long, a line for all ranks along the innermost axis.
std::string rank_table(const Mesh& mesh, const std::vector<Axis>& axes) {
  const int64_t fold = mesh.ranks() <= kMostLines ? 1 : mesh.size(axes.back());
  const int64_t lines = mesh.ranks() / fold;
  std::string text = fmt::format("{:>11}", fold == 1 ? "rank" : "ranks");
  for (const Axis axis : axes) text += fmt::format("  {:>12}", to_string(axis));
  text += "\n";
  for (int64_t line = 0; line < lines; ++line) {
    if (lines > kMostLines && line == kMostLines - 2) {
      text += fmt::format("{:>11}\n", "…");
      line = lines - 1;
    }
    const int64_t first = line * fold;
    const auto range = [&](int64_t begin) {
      return fold == 1 ? std::to_string(begin) : fmt::format("{}-{}", begin, begin + fold - 1);
    };
    text += fmt::format("{:>11}", range(first));
    for (const Axis axis : axes) {
      const int64_t place = mesh.coordinate(first, axis);
      text += fmt::format("  {:>12}", axis == axes.back() ? range(place) : std::to_string(place));
    }
    text += "\n";
  }
  return text;
}

std::string group_line(const Mesh& mesh, const Axes& axes, const std::string& name) {
  const auto groups = mesh.groups(axes);
  std::string text = fmt::format("  {:<24}  {:>4} x {:<4}", name, groups.size(), groups.front().size());
  for (size_t i = 0; i < groups.size(); ++i) {
    const bool shown = groups.size() <= kMostGroups || i + 1 < kMostGroups || i + 1 == groups.size();
    if (shown) text += "  " + short_list(groups[i]);
    if (!shown && i + 1 == kMostGroups) text += "  …";
  }
  return text + "\n";
}

}  // namespace

std::string describe(const Mesh& mesh) {
  const std::vector<Axis> axes = axes_in_use(mesh);
  std::string text = fmt::format("{} rank{}: ", mesh.ranks(), mesh.ranks() == 1 ? "" : "s");
  for (const Axis axis : axes)
    text += fmt::format("{}{} {}", axis == axes.front() ? "" : " x ", to_string(axis), mesh.size(axis));
  text += "\n\n" + rank_table(mesh, axes);
  text += fmt::format("\n  {:<24}  {:>4} x {:<4}  ranks\n", "groups", "many", "size");
  for (const Axis axis : axes) text += group_line(mesh, {axis}, to_string(axis));
  if (mesh.size(Axis::dp_replicate) > 1 && mesh.size(Axis::dp_shard) > 1)
    text += group_line(mesh, kDataAxes, to_string(kDataAxes));
  if (mesh.size(kDataAxes) < mesh.ranks()) text += group_line(mesh, {kAxes.begin(), kAxes.end()}, "all");
  return text;
}

}  // namespace weft
