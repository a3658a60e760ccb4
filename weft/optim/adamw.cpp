#include "weft/optim/adamw.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include <ATen/ATen.h>

#include "weft/base/error.h"

namespace weft {

AdamW::AdamW(const OptimConfig& optim, const std::vector<std::unique_ptr<ParamUnit>>& units) : optim_(optim) {
  bool any = false;
  for (const auto& unit : units) {
    UnitState state{unit.get(), at::zeros_like(unit->weights()), at::zeros_like(unit->weights()), {}};
    for (const auto& param : unit->params()) {
      const bool decay = decays(*param);
      any |= decay;
      if (!state.runs.empty() && state.runs.back().decays == decay)
        state.runs.back().numel += param->numel();
      else
        state.runs.push_back({param->offset(), param->numel(), decay});
    }
    states_.push_back(std::move(state));
  }
  if (optim.decay == "regex" && !any)
    fail("optim.decay_regex = \"{}\" matches no parameter; names look like {}", optim.decay_regex,
         units.front()->params().front()->name());
}

bool AdamW::decays(const Param& param) const {
  if (optim_.decay == "all") return true;
  if (optim_.decay == "regex") return std::regex_search(param.name(), std::regex(optim_.decay_regex));
  return param.shape().size() >= 2;
}

void AdamW::step(int64_t t, double lr, double gradient_scale) {
  const at::Tensor step_number = at::scalar_tensor(double(t), at::kFloat);
  for (UnitState& state : states_) {
    at::Tensor& grads = state.unit->grads();
    if (gradient_scale != 1) grads.mul_(gradient_scale);
    for (const UnitState::Run& run : state.runs) {
      const auto part = [&](const at::Tensor& x) {
        return std::vector<at::Tensor>{x.narrow(0, run.begin, run.numel)};
      };
      at::_fused_adamw_(part(state.unit->weights()), part(grads), part(state.exp_avg), part(state.exp_avg_sq),
                        /*max_exp_avg_sqs=*/{}, {step_number}, lr, optim_.beta1, optim_.beta2,
                        run.decays ? optim_.weight_decay : 0, optim_.eps, /*amsgrad=*/false,
                        /*maximize=*/false);
    }
  }
}

const AdamW::UnitState& AdamW::state_of(const Param& param) const {
  return *std::find_if(states_.begin(), states_.end(),
                       [&](const UnitState& state) { return state.unit == &param.unit(); });
}

at::Tensor AdamW::exp_avg(const Param& param) const { return param.view_of(state_of(param).exp_avg); }
at::Tensor AdamW::exp_avg_sq(const Param& param) const { return param.view_of(state_of(param).exp_avg_sq); }

double gradient_norm(const std::vector<std::unique_ptr<ParamUnit>>& units) {
  double sum = 0;
  for (const auto& unit : units) {
    const double norm = at::linalg_vector_norm(unit->grads(), 2, {}, false, at::kDouble).item<double>();
    sum += norm * norm;
  }
  return std::sqrt(sum);
}

double clip_coefficient(double norm, double clip_norm) {
  return clip_norm > 0 ? std::min(1.0, clip_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace weft
