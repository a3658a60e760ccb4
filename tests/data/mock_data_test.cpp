#include "weft/data/mock_data.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

namespace weft {
namespace {

std::vector<int64_t> sample(const MockData& data, int64_t index, size_t length = 1001) {
  std::vector<int64_t> out(length);
  data.read(index, out);
  return out;
}

TEST(MockData, IsAFunctionOfSeedAndSample) {
  const MockData data(7, 211), same(7, 211), other(8, 211);
  EXPECT_EQ(sample(data, 5), sample(same, 5));
  EXPECT_NE(sample(data, 5), sample(data, 6));
  EXPECT_NE(sample(data, 5), sample(other, 5));
}

TEST(MockData, HasAllTokensSeveralDocumentsAndStretchesThatAreOnlyInput) {
  const MockData data(7, 211);
  std::set<int64_t> tokens;
  for (int64_t index = 0; index < 9; ++index) {
    const std::vector<int64_t> all = sample(data, index);
    const auto inputs = std::ranges::count_if(all, [](int64_t token) { return token < 0; });
    EXPECT_EQ(inputs > 0, index % 3 == 1) << index;
    EXPECT_LT(inputs, int64_t(all.size()) * 2 / 3);
    for (int64_t token : all) tokens.insert(token < 0 ? ~token : token);
    EXPECT_GT(std::ranges::count(all, 0) + std::ranges::count(all, ~int64_t{0}), 10) << "documents";
  }
  EXPECT_EQ(tokens.size(), 211u);
  EXPECT_EQ(*tokens.begin(), 0);
  EXPECT_EQ(*tokens.rbegin(), 210);
}

TEST(MockData, AVocabularyOfOne) {
  for (const int64_t token : sample(MockData(7, 1), 0)) EXPECT_EQ(token, 0);
}

}  // namespace
}  // namespace weft
