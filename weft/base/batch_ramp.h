// The batch-size ramp (Megatron's --rampup-batch-size): the global batch as a pure function of the samples
// seen, so there is nothing to save and nothing to resume.
#pragma once

#include <cstdint>

#include "weft/base/config.h"

namespace weft {

/// Sequences of the step that begins after `samples` sequences: batch_ramp_start at first, one
/// batch_ramp_increment more after each equal share of batch_ramp_samples, global_batch from there on.
/// Without a ramp always global_batch. A change between steps only: no sequence is skipped or seen twice.
int64_t global_batch_at(const TrainConfig& train, int64_t samples);

/// Sequences seen after `steps` more steps from `samples` on. samples + steps * global_batch must fit.
uint64_t samples_after(const TrainConfig& train, int64_t samples, int64_t steps);

}  // namespace weft
