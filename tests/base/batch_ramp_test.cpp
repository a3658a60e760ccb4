#include "weft/base/batch_ramp.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace weft {
namespace {

TrainConfig ramp(int64_t start, int64_t increment, int64_t samples, int64_t global_batch) {
  TrainConfig train;
  train.batch_ramp_start = start, train.batch_ramp_increment = increment, train.batch_ramp_samples = samples;
  train.global_batch = global_batch;
  return train;
}

TEST(BatchRamp, GrowsInEqualShares) {
  const TrainConfig train = ramp(16, 8, 300, 40);  // three increments, each after 100 samples
  EXPECT_EQ(global_batch_at(train, 0), 16);
  EXPECT_EQ(global_batch_at(train, 99), 16);
  EXPECT_EQ(global_batch_at(train, 100), 24);
  EXPECT_EQ(global_batch_at(train, 199), 24);
  EXPECT_EQ(global_batch_at(train, 200), 32);
  EXPECT_EQ(global_batch_at(train, 299), 32);
  EXPECT_EQ(global_batch_at(train, 300), 40);
  EXPECT_EQ(global_batch_at(train, int64_t{1} << 60), 40);
  EXPECT_EQ(samples_after(train, 0, 7), 112u);
  EXPECT_EQ(samples_after(train, 0, 8), 136u);
}

TEST(BatchRamp, WithoutARampTheBatchIsConstant) {
  const TrainConfig train = ramp(0, 0, 0, 12);
  EXPECT_EQ(global_batch_at(train, 0), 12);
  EXPECT_EQ(samples_after(train, 7, 5), 67u);
  EXPECT_EQ(global_batch_at(ramp(12, 1, 100, 12), 0), 12) << "a ramp of no increments";
}

TEST(BatchRamp, TheLargestValuesDoNotOverflow) {
  const TrainConfig train = ramp(1, 1, int64_t(1e12), 1 << 24);
  EXPECT_EQ(global_batch_at(train, int64_t(1e12) - 1), (1 << 24) - 1);
  EXPECT_EQ(samples_after(train, int64_t(1e12), int64_t(1e12)), uint64_t(1e12) + uint64_t(1e12) * (1 << 24));
}

// Megatron-LM's: start + floor(samples / (ramp_samples / increments)) * increment. And whatever the ramp,
// stepping one by one, or from any place on, sees the same samples.
TEST(BatchRamp, IsMegatronsAndResumesAnywhere) {
  std::mt19937 random(5);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 300; ++round) {
    const int64_t start = pick(1, 9), increment = pick(1, 5), increments = pick(1, 12), length = pick(1, 400);
    const TrainConfig train = ramp(start, increment, length, start + increments * increment);
    int64_t samples = 0, previous = start;
    const int64_t resumed_at = pick(0, 100);
    for (int64_t step = 0; step < 100; ++step) {
      const int64_t batch = global_batch_at(train, samples);
      const int64_t grown = samples * increments / length;
      ASSERT_EQ(batch, std::min(start + grown * increment, train.global_batch));
      ASSERT_GE(batch, previous);
      ASSERT_EQ(samples_after(train, 0, step), uint64_t(samples));
      if (step == resumed_at) {
        ASSERT_EQ(samples_after(train, samples, 100 - step), samples_after(train, 0, 100));
      }
      samples += batch, previous = batch;
    }
  }
}

}  // namespace
}  // namespace weft
