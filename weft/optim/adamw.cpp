#include "weft/optim/adamw.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "weft/base/trace.h"

namespace weft {

AdamW::AdamW(const OptimConfig& optim, const std::vector<std::unique_ptr<ParamUnit>>& units) : optim_(optim) {
  for (const auto& unit : units) {
    if (!unit->trainable()) continue;
    const Shard& shard = unit->shard();
    const auto zeros = [&] {
      return counted_zeros(MemoryKind::optimizer, shard.numel, shard.master.scalar_type());
    };
    UnitState state{unit.get(), zeros(), zeros(), {}};
    unit->for_params_in(shard.begin, shard.end(), [&](const Param& param, int64_t begin, int64_t end) {
      if (begin == end) return;
      if (!state.runs.empty() && state.runs.back().rule == param.update_rule())
        state.runs.back().numel += end - begin;
      else
        state.runs.push_back({param.offset() + begin - shard.begin, end - begin, param.update_rule()});
    });
    std::erase_if(state.runs, [](const UnitState::Run& run) { return !run.rule.trainable; });
    states_.push_back(std::move(state));
  }
}

void AdamW::step(const Update& update) {
  Span span(SpanLevel::phase, "adamw", SpanKind::optimizer);
  const at::Tensor step_number = at::scalar_tensor(double(update.t), at::kFloat);
  double bytes = 0;
  for (UnitState& state : states_) {
    const Shard& shard = state.unit->shard();
    at::Tensor grad = shard.grad;
    if (update.gradient_scale != 1) grad.mul_(update.gradient_scale);
    for (const UnitState::Run& run : state.runs) {
      // Reads weights, gradients and both moments; writes all but the gradients.
      bytes += 7.0 * double(run.numel) * double(grad.element_size());
      const auto part = [&](const at::Tensor& x) {
        return std::vector<at::Tensor>{x.narrow(0, run.begin, run.numel).to(shard.master.scalar_type())};
      };
      at::_fused_adamw_(part(shard.master), part(grad), part(state.exp_avg), part(state.exp_avg_sq),
                        /*max_exp_avg_sqs=*/{}, {step_number}, update.lr * run.rule.lr_multiplier,
                        optim_.beta1, optim_.beta2, run.rule.decays ? update.weight_decay : 0, optim_.eps,
                        /*amsgrad=*/false,
                        /*maximize=*/false);
    }
  }
  span.did({.flops = 0, .bytes = bytes});
}

const AdamW::UnitState* AdamW::state_of(const ParamUnit& unit) const {
  const auto found =
      std::ranges::find_if(states_, [&](const UnitState& state) { return state.unit == &unit; });
  return found == states_.end() ? nullptr : &*found;
}

at::Tensor AdamW::exp_avg(const ParamUnit& unit) const {
  const UnitState* state = state_of(unit);
  return state ? state->exp_avg : at::Tensor();
}
at::Tensor AdamW::exp_avg_sq(const ParamUnit& unit) const {
  const UnitState* state = state_of(unit);
  return state ? state->exp_avg_sq : at::Tensor();
}

double gradient_square_sum(const std::vector<std::unique_ptr<ParamUnit>>& units) {
  Span span(SpanLevel::phase, "gradient_norm", SpanKind::optimizer);
  double sum = 0, bytes = 0;
  for (const auto& unit : units) {
    const Shard& shard = unit->shard();
    bytes += double(shard.grad.nbytes());
    const auto add = [&](int64_t begin, int64_t end) {
      const at::Tensor part = shard.grad.narrow(0, begin, end - begin);
      const double norm = at::linalg_vector_norm(part, 2, {}, false, at::kDouble).item<double>();
      sum += norm * norm;
    };
    // Neighbours that count here are summed in one go. Padding is zero.
    int64_t begin = 0, end = 0;
    unit->for_params_in(shard.begin, shard.end(), [&](const Param& param, int64_t first, int64_t last) {
      if (first == last) return;
      const int64_t place = param.offset() + first - shard.begin;
      if (!param.is_first_copy()) {
        if (begin < end) add(begin, end);
        begin = end = place + last - first;
      } else {
        end = place + last - first;
      }
    });
    if (begin < end) add(begin, end);
  }
  span.did({.flops = 0, .bytes = bytes});
  return sum;
}

double clip_coefficient(double norm, double clip_norm) {
  return clip_norm > 0 ? std::min(1.0, clip_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace weft
