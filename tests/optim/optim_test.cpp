#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "weft/optim/adamw.h"
#include "weft/optim/schedule.h"
#include "weft/optim/update_rule.h"
#include "weft/optim/weight_average.h"

namespace weft {
namespace {

std::vector<std::unique_ptr<ParamUnit>> units() {
  std::vector<std::unique_ptr<ParamUnit>> result;
  result.push_back(std::make_unique<ParamUnit>("layer", at::kDouble));
  for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<int64_t>>>{
           {"a.weight", {3, 5}}, {"a.bias", {3}}, {"b.weight", {7}}, {"c.weight", {2, 2}}}) {
    ParamSpec spec;
    spec.name = name, spec.shape = shape, spec.init.std = 1;
    result.back()->add(spec);
  }
  result.back()->allocate();
  result.back()->initialise(1);
  return result;
}

std::vector<Param*> params_of(const ParamUnit& unit) {
  std::vector<Param*> params;
  for (const auto& param : unit.params()) params.push_back(param.get());
  return params;
}

void set_gradient(ParamUnit& unit, int64_t t) {
  for (const auto& param : unit.params())
    param->grad().view({-1}).copy_(at::cos(at::arange(param->numel(), at::kDouble) + double(t)));
}

TEST(AdamW, FollowsThePaper) {
  OptimConfig optim;
  optim.weight_decay = 0.3, optim.decay = "regex", optim.decay_regex = "^a\\.";
  optim.lr_multipliers = {"^b = 0.5", "c.weight = 0"};
  auto all = units();
  ParamUnit& unit = *all.front();
  set_update_rules(optim, params_of(unit));
  AdamW adamw(optim, all);
  struct Reference {
    at::Tensor w, m, v;
  };
  std::vector<Reference> references;
  for (const auto& param : unit.params())
    references.push_back(
        {param->weight().clone(), at::zeros_like(param->weight()), at::zeros_like(param->weight())});
  const double lr = 0.01, clip = 0.5;
  for (int64_t t = 1; t <= 5; ++t) {
    set_gradient(unit, t);
    for (size_t i = 0; i < references.size(); ++i) {
      auto& [w, m, v] = references[i];
      const at::Tensor g = unit.params()[i]->grad() * clip;
      m = optim.beta1 * m + (1 - optim.beta1) * g;
      v = optim.beta2 * v + (1 - optim.beta2) * g * g;
      const at::Tensor m_hat = m / (1 - std::pow(optim.beta1, t)), v_hat = v / (1 - std::pow(optim.beta2, t));
      const char name = unit.params()[i]->name()[0];
      const double decay = name == 'a' ? optim.weight_decay : 0;
      const double multiplier = name == 'b' ? 0.5 : name == 'c' ? 0 : 1;
      w = w - multiplier * lr * (m_hat / (v_hat.sqrt() + optim.eps) + decay * w);
    }
    adamw.step({.t = t, .lr = lr, .weight_decay = optim.weight_decay, .gradient_scale = clip});
  }
  for (size_t i = 0; i < references.size(); ++i) {
    const Param& param = *unit.params()[i];
    EXPECT_LT((param.weight() - references[i].w).abs().max().item<double>(), 1e-14) << param.name();
    EXPECT_LT((param.view_of(adamw.exp_avg(unit)) - references[i].m).abs().max().item<double>(), 1e-15)
        << param.name();
    EXPECT_LT((param.view_of(adamw.exp_avg_sq(unit)) - references[i].v).abs().max().item<double>(), 1e-15)
        << param.name();
  }
  EXPECT_EQ(unit.weights()
                .narrow(0, unit.numel(), unit.weights().numel() - unit.numel())
                .abs()
                .sum()
                .item<double>(),
            0)
      << "padding stays zero";
}

TEST(AdamW, AMultiplierOfZeroMovesOnlyTheMoments) {
  OptimConfig optim;
  optim.lr_multipliers = {"c.weight = 0"};
  auto all = units();
  set_update_rules(optim, params_of(*all.front()));
  AdamW adamw(optim, all);
  const Param& c = *all.front()->params()[3];
  const at::Tensor before = c.weight().clone();
  set_gradient(*all.front(), 1);
  adamw.step({.t = 1, .lr = 0.1, .weight_decay = 0.5});
  EXPECT_TRUE(at::equal(c.weight(), before));
  EXPECT_GT(c.view_of(adamw.exp_avg(*all.front())).abs().min().item<double>(), 0);
}

TEST(AdamW, LeavesFrozenParamsAlone) {
  OptimConfig optim;
  optim.decay = "all", optim.freeze = {"bias", "^c"};
  auto all = units();
  set_update_rules(optim, params_of(*all.front()));
  AdamW adamw(optim, all);
  const at::Tensor before = all.front()->weights().clone();
  set_gradient(*all.front(), 1);
  adamw.step({.t = 1, .lr = 0.1, .weight_decay = 0.5});
  for (const auto& param : all.front()->params()) {
    const bool same = at::equal(param->weight(), param->view_of(before));
    EXPECT_EQ(same, !param->trainable()) << param->name();
    EXPECT_EQ(param->view_of(adamw.exp_avg(*all.front())).abs().max().item<double>() == 0,
              !param->trainable())
        << param->name();
  }
}

TEST(GradientNorm, CountsEveryElementInFp64) {
  const auto all = units();
  set_gradient(*all.front(), 0);
  double sum = 0;
  for (const auto& param : all.front()->params())
    for (int64_t i = 0; i < param->numel(); ++i) sum += std::cos(double(i)) * std::cos(double(i));
  EXPECT_NEAR(gradient_square_sum(all), sum, 1e-13);
  EXPECT_EQ(clip_coefficient(10, 0), 1);
  EXPECT_EQ(clip_coefficient(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(clip_coefficient(4, 1), 1 / 4.000001);
}

OptimConfig schedule(const std::string& name) {
  OptimConfig optim;
  optim.schedule = name, optim.lr = 2, optim.min_lr_ratio = 0.1, optim.warmup_steps = 10,
  optim.decay_steps = 110;
  optim.wsd_steps = 40;
  return optim;
}

TEST(LearningRate, WarmsUpAndDecays) {
  for (const std::string name : {"cosine", "linear", "wsd", "constant"}) {
    const OptimConfig optim = schedule(name);
    EXPECT_DOUBLE_EQ(learning_rate(optim, 1), 0.2) << name;
    EXPECT_DOUBLE_EQ(learning_rate(optim, 10), 2) << name;
    EXPECT_DOUBLE_EQ(learning_rate(optim, 110), name == "constant" ? 2 : 0.2) << name;
    EXPECT_DOUBLE_EQ(learning_rate(optim, 10000), name == "constant" ? 2 : 0.2) << name;
  }
  EXPECT_DOUBLE_EQ(learning_rate(schedule("cosine"), 60), 1.1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule("linear"), 35), 2 - 1.8 * 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(schedule("wsd"), 70), 2);
  const auto wsd_at_half = [](const std::string& shape) {
    OptimConfig optim = schedule("wsd");
    optim.wsd_shape = shape;
    return learning_rate(optim, 90);
  };
  EXPECT_DOUBLE_EQ(wsd_at_half("linear"), 0.2 + 1.8 * 0.5);
  EXPECT_DOUBLE_EQ(wsd_at_half("cosine"), 0.2 + 1.8 * 0.5);
  EXPECT_DOUBLE_EQ(wsd_at_half("exponential"), 0.2 + 1.8 * (2 / std::sqrt(2.0) - 1));
  EXPECT_DOUBLE_EQ(wsd_at_half("minus_sqrt"), 0.2 + 1.8 * (1 - std::sqrt(0.5)));
  OptimConfig no_warmup = schedule("cosine");
  no_warmup.warmup_steps = 0;
  EXPECT_LT(learning_rate(no_warmup, 1), 2);
  EXPECT_GT(learning_rate(no_warmup, 1), 1.99);
}

TEST(WeightDecay, MovesFromOneEndToTheOther) {
  OptimConfig optim;
  optim.weight_decay = 0.1, optim.weight_decay_end = 0.5;
  EXPECT_EQ(weight_decay(optim, 100, 70), 0.1);
  optim.weight_decay_schedule = "linear";
  EXPECT_DOUBLE_EQ(weight_decay(optim, 100, 25), 0.2);
  EXPECT_DOUBLE_EQ(weight_decay(optim, 100, 100), 0.5);
  EXPECT_DOUBLE_EQ(weight_decay(optim, 100, 1000), 0.5);
  optim.weight_decay_schedule = "cosine";
  // Megatron-LM's: start + (end - start) * (cos(pi (1 - r)) + 1) / 2, slow at both ends.
  for (const int64_t t : {1, 10, 50, 77, 100})
    EXPECT_NEAR(weight_decay(optim, 100, t), 0.1 + 0.4 * 0.5 * (std::cos(M_PI * (1 - double(t) / 100)) + 1),
                1e-15);
  EXPECT_LT(weight_decay(optim, 100, 10), 0.12);
  optim.weight_decay_end = 0;
  EXPECT_DOUBLE_EQ(weight_decay(optim, 100, 50), 0.05);
  EXPECT_NEAR(weight_decay(optim, 100, 100), 0, 1e-17);
}

TEST(WeightAverage, FollowsTheFormulaAndSwaps) {
  auto all = units();
  ParamUnit& unit = *all.front();
  const Param &a = *unit.params()[0], &still = *unit.params()[1];
  WeightAverage average(0.9, all);
  average.start();
  at::Tensor expected = a.weight().clone();
  const at::Tensor unmoved = still.weight().clone();
  for (int64_t t = 0; t < 20; ++t) {
    a.weight().add_(at::cos(at::arange(a.numel(), at::kDouble) + double(t)).view(a.shape()));
    average.update();
    expected = 0.9 * expected + 0.1 * a.weight();
  }
  EXPECT_LT((a.view_of(average.of(unit)) - expected).abs().max().item<double>(), 1e-14);
  EXPECT_TRUE(at::equal(still.view_of(average.of(unit)), unmoved))
      << "an average of what never changes keeps its bits";

  const at::Tensor weight = a.weight().clone(), mean = a.view_of(average.of(unit)).clone();
  average.swap();
  EXPECT_TRUE(at::equal(a.weight(), mean));
  EXPECT_TRUE(at::equal(a.view_of(average.of(unit)), weight));
  average.swap();
  EXPECT_TRUE(at::equal(a.weight(), weight));
}

}  // namespace
}  // namespace weft
