#include "weft/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft {
namespace {

// What is left of a range after a share r in [0, 1] of the way: 1 at 0, 0 at 1.
double remaining(const std::string& shape, double r) {
  if (shape == "linear") return 1 - r;
  if (shape == "cosine") return 0.5 * (1 + std::cos(std::numbers::pi * r));
  if (shape == "exponential") return 2 * std::pow(0.5, r) - 1;
  return 1 - std::sqrt(r);  // minus_sqrt
}

}  // namespace

double learning_rate(const OptimConfig& optim, int64_t t) {
  if (t <= optim.warmup_steps) return optim.lr * double(t) / double(optim.warmup_steps);
  if (optim.schedule == "constant") return optim.lr;
  const bool wsd = optim.schedule == "wsd";
  const int64_t start =
      wsd ? std::max(optim.warmup_steps, optim.decay_steps - optim.wsd_steps) : optim.warmup_steps;
  if (t <= start) return optim.lr;
  const double r = std::min(1.0, double(t - start) / double(std::max<int64_t>(1, optim.decay_steps - start)));
  const double min_lr = optim.lr * optim.min_lr_ratio;
  return min_lr + (optim.lr - min_lr) * remaining(wsd ? optim.wsd_shape : optim.schedule, r);
}

double weight_decay(const OptimConfig& optim, int64_t steps, int64_t t) {
  if (optim.weight_decay_schedule == "constant") return optim.weight_decay;
  const double r = std::min(1.0, double(t) / double(steps));
  const double rest = remaining(optim.weight_decay_schedule, r);
  return optim.weight_decay_end + (optim.weight_decay - optim.weight_decay_end) * rest;
}

}  // namespace weft
