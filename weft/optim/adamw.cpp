#include "weft/optim/adamw.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "weft/base/trace.h"

namespace weft {

AdamW::AdamW(const OptimConfig& optim, const std::vector<std::unique_ptr<ParamUnit>>& units) : optim_(optim) {
  for (const auto& unit : units) {
    UnitState state{unit.get(), {}, {}, {}};
    for (const auto& param : unit->params()) {
      if (!state.runs.empty() && state.runs.back().rule == param->update_rule())
        state.runs.back().numel += param->numel();
      else
        state.runs.push_back({param->offset(), param->numel(), param->update_rule()});
    }
    std::erase_if(state.runs, [](const UnitState::Run& run) { return !run.rule.trainable; });
    if (state.runs.empty()) continue;  // all of it is frozen
    state.exp_avg = at::zeros_like(unit->weights()), state.exp_avg_sq = at::zeros_like(unit->weights());
    states_.push_back(std::move(state));
  }
}

void AdamW::step(const Update& update) {
  Span span(SpanLevel::phase, "adamw", SpanKind::optimizer);
  const at::Tensor step_number = at::scalar_tensor(double(update.t), at::kFloat);
  double bytes = 0;
  for (UnitState& state : states_) {
    at::Tensor& grads = state.unit->grads();
    if (update.gradient_scale != 1) grads.mul_(update.gradient_scale);
    for (const UnitState::Run& run : state.runs) {
      // Reads weights, gradients and both moments; writes all but the gradients.
      bytes += 7.0 * double(run.numel) * double(grads.element_size());
      const auto part = [&](const at::Tensor& x) {
        return std::vector<at::Tensor>{x.narrow(0, run.begin, run.numel)};
      };
      at::_fused_adamw_(part(state.unit->weights()), part(grads), part(state.exp_avg), part(state.exp_avg_sq),
                        /*max_exp_avg_sqs=*/{}, {step_number}, update.lr * run.rule.lr_multiplier,
                        optim_.beta1, optim_.beta2, run.rule.decays ? update.weight_decay : 0, optim_.eps,
                        /*amsgrad=*/false,
                        /*maximize=*/false);
    }
  }
  span.did({.flops = 0, .bytes = bytes});
}

const AdamW::UnitState& AdamW::state_of(const Param& param) const {
  return *std::find_if(states_.begin(), states_.end(),
                       [&](const UnitState& state) { return state.unit == &param.unit(); });
}

at::Tensor AdamW::exp_avg(const Param& param) const { return param.view_of(state_of(param).exp_avg); }
at::Tensor AdamW::exp_avg_sq(const Param& param) const { return param.view_of(state_of(param).exp_avg_sq); }

double gradient_norm(const std::vector<std::unique_ptr<ParamUnit>>& units) {
  Span span(SpanLevel::phase, "gradient_norm", SpanKind::optimizer);
  double sum = 0, bytes = 0;
  for (const auto& unit : units) {
    bytes += double(unit->grads().nbytes());
    const double norm = at::linalg_vector_norm(unit->grads(), 2, {}, false, at::kDouble).item<double>();
    sum += norm * norm;
  }
  span.did({.flops = 0, .bytes = bytes});
  return std::sqrt(sum);
}

double clip_coefficient(double norm, double clip_norm) {
  return clip_norm > 0 ? std::min(1.0, clip_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace weft
