#include "weft/base/batch_ramp.h"

#include <algorithm>

namespace weft {
namespace {

int64_t increments(const TrainConfig& train) {
  return (train.global_batch - train.batch_ramp_start) / train.batch_ramp_increment;
}

// The schema's bounds keep these products, up to 2^24 * 1e12, inside 64 bits without a sign.
uint64_t product(int64_t a, int64_t b) { return uint64_t(a) * uint64_t(b); }

// The first position in the data at which the batch has grown `count` times.
int64_t start_of(const TrainConfig& train, int64_t count) {
  const auto n = uint64_t(increments(train));
  return int64_t((product(count, train.batch_ramp_samples) + n - 1) / n);
}

}  // namespace

int64_t global_batch_at(const TrainConfig& train, int64_t samples) {
  if (train.batch_ramp_start == 0 || samples >= train.batch_ramp_samples) return train.global_batch;
  const auto grown = int64_t(product(samples, increments(train)) / uint64_t(train.batch_ramp_samples));
  return train.batch_ramp_start + grown * train.batch_ramp_increment;
}

uint64_t samples_after(const TrainConfig& train, int64_t samples, int64_t steps) {
  // As many steps at once as have the same batch: a ramp has far fewer sizes than steps.
  for (int64_t batch; (batch = global_batch_at(train, samples)) < train.global_batch && steps > 0;) {
    const int64_t grown = (batch - train.batch_ramp_start) / train.batch_ramp_increment;
    const int64_t room = start_of(train, grown + 1) - samples;
    const int64_t same = std::min(steps, (room + batch - 1) / batch);
    samples += same * batch;
    steps -= same;
  }
  return uint64_t(samples) + product(steps, train.global_batch);
}

}  // namespace weft
