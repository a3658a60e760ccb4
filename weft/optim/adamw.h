// AdamW (Loshchilov & Hutter 2019) over the units' flat buffers, and the global gradient norm.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/config.h"
#include "weft/param/param_unit.h"

namespace weft {

class AdamW {
 public:
  /// `units` must outlive the optimizer. Throws Error for a decay_regex that matches nothing.
  AdamW(const OptimConfig& optim, const std::vector<std::unique_ptr<ParamUnit>>& units);

  /// One update of all weights from the units' gradients, times `gradient_scale` (clipping; in place). t
  /// counts from 1.
  void step(int64_t t, double lr, double gradient_scale);

  /// The moments of a param, as views: for checkpoints.
  at::Tensor exp_avg(const Param& param) const;
  at::Tensor exp_avg_sq(const Param& param) const;

  /// Whether weight decay applies to the param (optim.decay).
  bool decays(const Param& param) const;

 private:
  struct UnitState {
    ParamUnit* unit;
    at::Tensor exp_avg, exp_avg_sq;  // flat, like the unit's weights
    struct Run {                     // neighbouring segments that are treated alike
      int64_t begin, numel;
      bool decays;
    };
    std::vector<Run> runs;
  };
  const UnitState& state_of(const Param& param) const;

  OptimConfig optim_;
  std::vector<UnitState> states_;
};

/// sqrt of the sum of squares over every element of the model, accumulated in fp64.
double gradient_norm(const std::vector<std::unique_ptr<ParamUnit>>& units);

/// What gradients are multiplied by so that their norm does not exceed clip_norm (0: no clipping).
double clip_coefficient(double norm, double clip_norm);

}  // namespace weft
