// Mesh: who is where. The one owner of topology: ranks are laid out row-major over named axes, and every
// group of ranks that communicate is a set of those axes. Arithmetic only, no communication and no torch.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "weft/base/config.h"

namespace weft {

/// Outermost to innermost: neighbours along tp are neighbouring ranks.
enum class Axis { pp, dp_replicate, dp_shard, cp, tp };
inline constexpr std::array kAxes = {Axis::pp, Axis::dp_replicate, Axis::dp_shard, Axis::cp, Axis::tp};
std::string to_string(Axis axis);

using Axes = std::set<Axis>;
std::string to_string(const Axes& axes);  // "dp_replicate x dp_shard"

/// The axes whose ranks see different data.
inline const Axes kDataAxes = {Axis::dp_replicate, Axis::dp_shard};

class Mesh {
 public:
  /// The mesh that `parallel` describes for `ranks` ranks. Throws one Error listing every size that does not
  /// fit, each with the values that would.
  Mesh(const ParallelConfig& parallel, int64_t ranks);

  int64_t ranks() const { return ranks_; }
  int64_t size(Axis axis) const { return sizes_[size_t(axis)]; }
  int64_t size(const Axes& axes) const;

  /// Where a rank stands on an axis, and among the ranks of its group over several (row-major).
  int64_t coordinate(int64_t rank, Axis axis) const;
  int64_t coordinate(int64_t rank, const Axes& axes) const;

  /// The ranks that differ from `rank` on `axes` only, itself included, in the order of their coordinates.
  std::vector<int64_t> group(int64_t rank, const Axes& axes) const;

  /// The groups over `axes`, which together hold every rank once.
  std::vector<std::vector<int64_t>> groups(const Axes& axes) const;

 private:
  int64_t ranks_;
  std::array<int64_t, kAxes.size()> sizes_ = {1, 1, 1, 1, 1};
};

/// What `weft mesh` prints: the axes' sizes, each rank's coordinates, and the groups.
std::string describe(const Mesh& mesh);

}  // namespace weft
