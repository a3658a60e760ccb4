#include "weft/train/early_stop.h"

#include <cmath>

#include <fmt/format.h>

namespace weft {

void EarlyStop::enter(int64_t step, double loss) {
  const bool better = std::isfinite(loss) && (best_step_ < 0 || loss < best_loss_ - min_delta_);
  if (!better) {
    ++without_improvement_;
    return;
  }
  best_loss_ = loss, best_step_ = step;
  without_improvement_ = 0;
}

std::string EarlyStop::reason() const {
  const std::string best = best_step_ < 0
                               ? "none was finite"
                               : fmt::format("the best was {:.4f} after step {}", best_loss_, best_step_);
  return fmt::format("no better validation loss in {} evaluations; {}", without_improvement_, best);
}

nlohmann::json EarlyStop::state() const {
  return {
      {"best_loss", best_loss_}, {"best_step", best_step_}, {"without_improvement", without_improvement_}};
}

void EarlyStop::restore(const nlohmann::json& state) {
  state.at("best_loss").get_to(best_loss_);
  state.at("best_step").get_to(best_step_);
  state.at("without_improvement").get_to(without_improvement_);
}

}  // namespace weft
