// Learning rate and weight decay as pure functions of the update's number: nothing to save, nothing to
// resume.
#pragma once

#include <cstdint>

#include "weft/base/config.h"

namespace weft {

/// The rate of update t = 1, 2, …: linear warm-up to optim.lr, then cosine, linear, WSD (Hu et al. 2024) or
/// constant down to min_lr_ratio * lr at decay_steps, and that from there on. `optim` must be resolved.
double learning_rate(const OptimConfig& optim, int64_t t);

/// The weight decay of update t = 1, 2, …: from optim.weight_decay to weight_decay_end at update `steps`, up
/// or down, linearly or along half a cosine (Megatron's weight-decay-incr-style), and that from there on.
double weight_decay(const OptimConfig& optim, int64_t steps, int64_t t);

}  // namespace weft
