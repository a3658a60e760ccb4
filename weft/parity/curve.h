// A run's curve: what must not depend on its layout.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/config.h"
#include "weft/base/env.h"

namespace weft {

struct TrainingCurve {
  std::map<std::string, std::vector<double>> metrics;  // "loss", "grad_norm", "valid_loss": of each step
  std::map<std::string, at::Tensor> weights;  // the last checkpoint's, and their averages ("ema.NAME")
};

/// The curve in the run directory of a finished run. Throws Error if it is not whole.
TrainingCurve read_curve(const Config& config, Env& env);

/// The weights that a run of `config` starts from, under the same names as a curve's.
std::map<std::string, at::Tensor> initial_weights(const Config& config);

/// How far two curves lie apart.
struct Deviation {
  double loss = 0, grad_norm = 0;  // the worst step's, relative
  double weights = 0;              // the worst tensor's max|a - b| / max|final - initial|
  std::string tensor;              // its name

  double worst() const;
};

/// A tensor that the reference does not move, as its gradient is exactly zero (a key bias without RoPE), has
/// max|a - b| / (lr * steps) instead: nothing but rounding moves it.
Deviation compare(const TrainingCurve& reference, const TrainingCurve& found,
                  const std::map<std::string, at::Tensor>& initial, const Config& config);

}  // namespace weft
