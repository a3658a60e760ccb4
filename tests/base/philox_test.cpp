#include "weft/base/philox.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers that the authors publish with Random123.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0'a4093822, 0x85a308d3'243f6a88, 0x03707344'13198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformStaysInsideTheOpenInterval) {
  EXPECT_GT(uniform_from_bits(0, 0), 0.0);
  EXPECT_LT(uniform_from_bits(~0u, ~0u), 1.0);
  EXPECT_DOUBLE_EQ(uniform_from_bits(0x80000000, 0), 0.5);
}

TEST(Philox, NormalsHaveTheMomentsOfANormal) {
  const int n = 100'000;
  double sum = 0, squares = 0, fourth = 0, cross = 0;
  for (int i = 0; i < n; ++i) {
    const auto [a, b] = philox_normals(7, uint64_t(i));
    sum += a + b;
    squares += a * a + b * b;
    fourth += a * a * a * a + b * b * b * b;
    cross += a * b;
  }
  EXPECT_NEAR(sum / (2 * n), 0, 0.01);       // 4.5 standard errors
  EXPECT_NEAR(squares / (2 * n), 1, 0.015);  // 4.7
  EXPECT_NEAR(fourth / (2 * n), 3, 0.1);     // 4.6
  EXPECT_NEAR(cross / n, 0, 0.015);          // 4.7
}

}  // namespace
}  // namespace weft
