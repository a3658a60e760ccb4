#include "weft/base/boxes.h"

#include <functional>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Shape = std::vector<int64_t>;

/// The row-major numbers of the elements of a box, in its own order.
std::vector<int64_t> elements(const Box& box, const Shape& shape) {
  std::vector<int64_t> numbers = {0};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    std::vector<int64_t> inner;
    for (const int64_t number : numbers)
      for (int64_t i = box.begin[dim]; i < box.end[dim]; ++i) inner.push_back(number * shape[dim] + i);
    numbers = std::move(inner);
  }
  return numbers;
}

TEST(BoxesOfRange, HoldTheRangeInOrderAndAreFew) {
  for (const Shape& shape : std::vector<Shape>{
           {}, {1}, {13}, {7, 13}, {1, 6}, {6, 1}, {3, 2, 5}, {2, 1, 3, 2}, {1, 1, 1}, {2, 3, 2, 3}}) {
    const int64_t numel = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    for (int64_t begin = 0; begin <= numel; ++begin)
      for (int64_t end = begin; end <= numel; ++end) {
        SCOPED_TRACE(testing::PrintToString(shape) + " " + std::to_string(begin) + " " + std::to_string(end));
        const std::vector<Box> boxes = boxes_of_range(shape, begin, end);
        EXPECT_LE(boxes.size(), std::max<size_t>(1, 2 * shape.size() - 1));
        int64_t next = begin;
        for (const Box& box : boxes) {
          EXPECT_GT(box.numel(), 0);
          for (const int64_t element : elements(box, shape)) ASSERT_EQ(element, next++);
        }
        ASSERT_EQ(next, end);
      }
  }
}

TEST(BoxesOfRange, AWholeTensorIsOneBox) {
  EXPECT_THAT(boxes_of_range({3, 2, 5}, 0, 30), ElementsAre(Box{{0, 0, 0}, {3, 2, 5}}));
  EXPECT_THAT(boxes_of_range({}, 0, 1), ElementsAre(Box{}));
}

TEST(BoxesOfRange, TwoDimsTakeThree) {
  EXPECT_THAT(boxes_of_range({5, 7}, 3, 30),
              ElementsAre(Box{{0, 3}, {1, 7}}, Box{{1, 0}, {4, 7}}, Box{{4, 0}, {5, 2}}));
}

TEST(BoxesOfRange, NothingIsNoBox) {
  EXPECT_THAT(boxes_of_range({0, 3}, 0, 0), IsEmpty());
  EXPECT_THAT(boxes_of_range({4}, 2, 2), IsEmpty());
}

TEST(Intersection, HoldsWhatLiesInBoth) {
  EXPECT_EQ(intersection({{0, 2}, {3, 7}}, {{2, 0}, {5, 4}}), (Box{{2, 2}, {3, 4}}));
  EXPECT_EQ(intersection({{0, 2}, {3, 7}}, {{3, 0}, {5, 4}}), std::nullopt);
  EXPECT_EQ(intersection(Box{}, Box{}), Box{});
}

}  // namespace
}  // namespace weft
