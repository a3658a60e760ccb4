#include "weft/nn/sampling.h"

#include <cmath>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

const at::Tensor kLogits = at::tensor({1.0, 3.0, 2.0, 3.0, -5.0});

std::map<int64_t, int> draw(const SamplingOptions& options, int n) {
  std::map<int64_t, int> counts;
  for (int i = 0; i < n; ++i) ++counts[sample_token(kLogits, options, i)];
  return counts;
}

TEST(Sampling, GreedyTakesTheLowestOfEquals) { EXPECT_EQ(sample_token(kLogits, {.temperature = 0}, 0), 1); }

TEST(Sampling, FollowsTheSoftmax) {
  const int n = 20000;
  auto counts = draw({.temperature = 2, .seed = 3}, n);
  const at::Tensor p = at::softmax(kLogits.to(at::kDouble) / 2, 0);
  for (int64_t i = 0; i < 5; ++i) {
    const double expected = p[i].item<double>();
    EXPECT_NEAR(counts[i] / double(n), expected, 4 * std::sqrt(expected * (1 - expected) / n)) << i;
  }
}

TEST(Sampling, TopKAndTopPKeepTheMostLikely) {
  const auto keys = [](const std::map<int64_t, int>& counts) {
    std::set<int64_t> result;
    for (const auto& [token, count] : counts) result.insert(token);
    return result;
  };
  EXPECT_EQ(keys(draw({.top_k = 2}, 500)), (std::set<int64_t>{1, 3}));
  EXPECT_EQ(keys(draw({.top_k = 3}, 500)), (std::set<int64_t>{1, 2, 3}));
  EXPECT_EQ(keys(draw({.top_p = 0.5}, 500)), (std::set<int64_t>{1, 3}));  // 0.40 + 0.40
  EXPECT_EQ(keys(draw({.top_p = 0.3}, 500)), (std::set<int64_t>{1}));
  EXPECT_EQ(keys(draw({.top_p = 1e-9}, 50)), (std::set<int64_t>{1}));
  EXPECT_EQ(keys(draw({.top_k = 1000}, 5000)).count(0), 1u);
}

TEST(Sampling, IsAFunctionOfSeedAndPosition) {
  std::vector<int64_t> first, again, other;
  for (int64_t i = 0; i < 100; ++i) {
    first.push_back(sample_token(kLogits, {.seed = 1}, i));
    again.push_back(sample_token(kLogits, {.seed = 1}, i));
    other.push_back(sample_token(kLogits, {.seed = 2}, i));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

}  // namespace
}  // namespace weft
