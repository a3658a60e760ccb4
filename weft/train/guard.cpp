#include "weft/train/guard.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace weft {

std::string StepGuard::check(double loss, double grad_norm) const {
  if (!std::isfinite(loss)) return fmt::format("the loss is {}", loss);
  if (!std::isfinite(grad_norm)) return fmt::format("the gradient norm is {}", grad_norm);
  if (spike_factor_ > 0 && n_applied_ >= kWarmup && grad_norm > spike_factor_ * mean_norm_)
    return fmt::format("the gradient norm {:.3g} is above {} times its mean {:.3g}", grad_norm, spike_factor_,
                       mean_norm_);
  return {};
}

void StepGuard::applied(double grad_norm) {
  consecutive_bad_ = 0;
  ++n_applied_;
  mean_norm_ += (grad_norm - mean_norm_) / double(std::min(n_applied_, kWarmup));
}

nlohmann::json StepGuard::state() const {
  return {{"mean_norm", mean_norm_}, {"applied", n_applied_}, {"consecutive_bad", consecutive_bad_}};
}

void StepGuard::restore(const nlohmann::json& state) {
  state.at("mean_norm").get_to(mean_norm_);
  state.at("applied").get_to(n_applied_);
  state.at("consecutive_bad").get_to(consecutive_bad_);
}

}  // namespace weft
