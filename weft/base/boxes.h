// Boxes of tensors, without torch. A rank holds a contiguous run of a tensor's elements in row-major order;
// a checkpoint holds boxes, which any other layout can cut again.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace weft {

/// The elements [begin, end) in each dim of a tensor.
struct Box {
  std::vector<int64_t> begin, end;

  std::vector<int64_t> shape() const;
  int64_t numel() const;
  bool operator==(const Box&) const = default;
};

/// All of a tensor.
Box whole_box(const std::vector<int64_t>& shape);

/// Elements [begin, end) of a tensor, in row-major order, as boxes: at most 2 dims - 1, each again a
/// contiguous run, in the order of their elements.
std::vector<Box> boxes_of_range(const std::vector<int64_t>& shape, int64_t begin, int64_t end);

/// The elements of a box of a tensor as contiguous runs [begin, end) of the tensor's, in row-major order.
std::vector<std::pair<int64_t, int64_t>> runs_of_box(const std::vector<int64_t>& shape, const Box& box);

/// What lies in both boxes of a tensor, if anything does.
std::optional<Box> intersection(const Box& a, const Box& b);

}  // namespace weft
