// Early stopping: ends a run whose validation loss no longer gets better.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "weft/base/config.h"

namespace weft {

class EarlyStop {
 public:
  explicit EarlyStop(const TrainConfig& train)
      : patience_(train.early_stop_patience), min_delta_(train.early_stop_min_delta) {}

  /// Enters an evaluation. Better than the best so far is a loss lower by more than early_stop_min_delta.
  void enter(int64_t step, double loss);

  /// Were the last early_stop_patience evaluations all without improvement?
  bool due() const { return patience_ > 0 && without_improvement_ >= patience_; }

  /// "no better validation loss in 3 evaluations; the best was 2.5000 after step 40", once due.
  std::string reason() const;

  /// For checkpoints: a resumed run counts on.
  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  int64_t patience_;
  double min_delta_;
  double best_loss_ = 0;
  int64_t best_step_ = -1;  // none yet
  int64_t without_improvement_ = 0;
};

}  // namespace weft
