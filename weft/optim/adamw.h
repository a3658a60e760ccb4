// AdamW (Loshchilov & Hutter 2019) over the shards that this rank owns of the units, and gradient clipping.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/config.h"
#include "weft/param/param_unit.h"

namespace weft {

/// What one update goes by.
struct Update {
  int64_t t;  // its number, from 1
  double lr, weight_decay;
  double gradient_scale = 1;  // clipping
};

class AdamW {
 public:
  /// `units` must outlive the optimizer, and their params' update rules be set.
  AdamW(const OptimConfig& optim, const std::vector<std::unique_ptr<ParamUnit>>& units);

  /// One update of the shards' trainable master weights from their gradients, which it scales in place. A
  /// param's multiplier applies to lr wherever it stands, its decay included.
  void step(const Update& update);

  /// The moments of a unit's shard [shard numel]: for checkpoints. Undefined where nothing of the unit is
  /// trained.
  at::Tensor exp_avg(const ParamUnit& unit) const;
  at::Tensor exp_avg_sq(const ParamUnit& unit) const;

 private:
  struct UnitState {
    ParamUnit* unit;
    at::Tensor exp_avg, exp_avg_sq;  // [shard numel]; zero where nothing is trained
    struct Run {                     // neighbouring segments of the shard that are treated alike
      int64_t begin, numel;
      UpdateRule rule;
    };
    std::vector<Run> runs;
  };
  const UnitState* state_of(const ParamUnit& unit) const;

  OptimConfig optim_;
  std::vector<UnitState> states_;
};

/// The sum of squares of the gradients in the shards of this rank, accumulated in fp64; of what several
/// tensor-parallel ranks hold, only on the first. What is not trained
/// has zero gradients and adds nothing.
double gradient_square_sum(const std::vector<std::unique_ptr<ParamUnit>>& units);

/// What gradients are multiplied by so that their norm does not exceed clip_norm (0: no clipping).
double clip_coefficient(double norm, double clip_norm);

}  // namespace weft
