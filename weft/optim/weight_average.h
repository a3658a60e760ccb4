// An exponential moving average of the weights (Polyak & Juditsky 1992, in its exponential form): less noisy
// than the weights of any one step, so it often predicts better.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/param/param_unit.h"

namespace weft {

class WeightAverage {
 public:
  /// Zero until start() or a load. `units` must outlive it.
  WeightAverage(double decay, const std::vector<std::unique_ptr<ParamUnit>>& units);

  void start();   // average = master weights
  void update();  // average = decay * average + (1 - decay) * weights: after each update of theirs

  /// The average of a unit's shard [shard numel]: for checkpoints.
  at::Tensor of(const ParamUnit& unit) const;

  /// Exchanges the average and the master weights; the next call changes them back.
  void swap();

 private:
  struct UnitAverage {
    ParamUnit* unit;
    at::Tensor average;  // [shard numel]
  };
  double decay_;
  std::vector<UnitAverage> averages_;
};

}  // namespace weft
