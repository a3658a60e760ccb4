// Looks at a step's loss and gradient norm before the update is applied.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "weft/base/config.h"

namespace weft {

class StepGuard {
 public:
  explicit StepGuard(const TrainConfig& train) : spike_factor_(train.spike_factor) {}

  /// Why the step must not be applied: not finite, or a gradient norm above spike_factor times its running
  /// mean over the applied steps. Empty: it is sound.
  std::string check(double loss, double grad_norm) const;

  /// What became of the step.
  void applied(double grad_norm);
  void skipped() { ++consecutive_bad_; }

  int64_t consecutive_bad() const { return consecutive_bad_; }

  /// For checkpoints: a resumed run judges as the uninterrupted one would.
  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  static constexpr int64_t kWarmup = 20;  // applied steps before spikes are judged
  double spike_factor_;
  double mean_norm_ = 0;  // exponential, of weight 1 / kWarmup
  int64_t n_applied_ = 0;
  int64_t consecutive_bad_ = 0;
};

}  // namespace weft
