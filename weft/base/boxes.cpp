#include "weft/base/boxes.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "weft/base/error.h"

namespace weft {
namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

std::vector<int64_t> Box::shape() const {
  std::vector<int64_t> sizes;
  for (size_t dim = 0; dim < begin.size(); ++dim) sizes.push_back(end[dim] - begin[dim]);
  return sizes;
}

int64_t Box::numel() const { return product(shape()); }

Box whole_box(const std::vector<int64_t>& shape) { return {std::vector<int64_t>(shape.size(), 0), shape}; }

std::vector<Box> boxes_of_range(const std::vector<int64_t>& shape, int64_t begin, int64_t end) {
  WEFT_ASSERT(0 <= begin && begin <= end && end <= product(shape), "elements [{}, {}) of {}", begin, end,
              product(shape));
  std::vector<Box> boxes;
  while (begin < end) {
    // As many slices as fit, of the outermost dim in which one begins here and ends in the range. Dims
    // outside of it keep one index, dims inside of it are whole.
    Box box = whole_box(shape);
    int64_t slice = product(shape), within = begin;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      slice /= shape[dim];
      const int64_t index = within / slice;
      within %= slice;
      const int64_t count = within == 0 ? std::min((end - begin) / slice, shape[dim] - index) : 0;
      box.begin[dim] = index;
      box.end[dim] = index + std::max<int64_t>(count, 1);
      if (count > 0) break;
    }
    begin += box.numel();
    boxes.push_back(std::move(box));
  }
  return boxes;
}

std::vector<std::pair<int64_t, int64_t>> runs_of_box(const std::vector<int64_t>& shape, const Box& box) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  if (box.numel() == 0) return runs;
  // Dims that the box holds whole, and the innermost of the others, make one run; those outside of them
  // count through their indices.
  size_t outer = shape.size();
  int64_t run = 1;
  for (bool whole = true; whole && outer > 0;) {
    --outer;
    run *= box.end[outer] - box.begin[outer];
    whole = box.end[outer] - box.begin[outer] == shape[outer];
  }
  std::vector<int64_t> index = box.begin;
  while (true) {
    int64_t begin = 0;
    for (size_t dim = 0; dim < shape.size(); ++dim) begin = begin * shape[dim] + index[dim];
    if (!runs.empty() && runs.back().second == begin)
      runs.back().second += run;
    else
      runs.emplace_back(begin, begin + run);
    size_t dim = outer;
    while (dim > 0 && ++index[dim - 1] == box.end[dim - 1]) {
      index[dim - 1] = box.begin[dim - 1];
      --dim;
    }
    if (dim == 0) return runs;
  }
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box both = a;
  for (size_t dim = 0; dim < a.begin.size(); ++dim) {
    both.begin[dim] = std::max(a.begin[dim], b.begin[dim]);
    both.end[dim] = std::min(a.end[dim], b.end[dim]);
    if (both.begin[dim] >= both.end[dim]) return std::nullopt;
  }
  return both;
}

}  // namespace weft
