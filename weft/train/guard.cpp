#include "weft/train/guard.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace weft {

std::string StepGuard::check(double loss, double grad_norm) {
  std::string problem;
  if (!std::isfinite(loss))
    problem = fmt::format("the loss is {}", loss);
  else if (!std::isfinite(grad_norm))
    problem = fmt::format("the gradient norm is {}", grad_norm);
  else if (spike_factor_ > 0 && applied_ >= kWarmup && grad_norm > spike_factor_ * mean_norm_)
    problem = fmt::format("the gradient norm {:.3g} is above {} times its mean {:.3g}", grad_norm,
                          spike_factor_, mean_norm_);
  if (!problem.empty()) {
    ++consecutive_bad_;
    return problem;
  }
  consecutive_bad_ = 0;
  ++applied_;
  mean_norm_ += (grad_norm - mean_norm_) / double(std::min(applied_, kWarmup));
  return {};
}

nlohmann::json StepGuard::state() const {
  return {{"mean_norm", mean_norm_}, {"applied", applied_}, {"consecutive_bad", consecutive_bad_}};
}

void StepGuard::restore(const nlohmann::json& state) {
  state.at("mean_norm").get_to(mean_norm_);
  state.at("applied").get_to(applied_);
  state.at("consecutive_bad").get_to(consecutive_bad_);
}

}  // namespace weft
