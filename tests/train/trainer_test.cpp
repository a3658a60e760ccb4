// The Trainer against hand-made loops, in fp64.
#include "weft/train/trainer.h"

#include <cmath>
#include <map>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/base/safetensors.h"
#include "weft/optim/schedule.h"
#include "weft/optim/update_rule.h"

#include "tests/base/temporary_dir.h"

namespace weft {
namespace {

Env& env = Env::system();

class TrainerTest : public testing::Test {
 protected:
  // Random tokens [steps, sequences, 9] in a file of their own.
  std::string tokens(const std::string& name, int64_t steps, int64_t sequences) {
    std::vector<int64_t> values(size_t(steps * sequences * 9));
    for (size_t i = 0; i < values.size(); ++i) values[i] = philox(uint64_t(steps), i)[0] % 17;
    write_safetensors(env, dir_ / name,
                      {{"tokens", "I64", {steps, sequences, 9}, std::as_bytes(std::span(values))}});
    return dir_ / name;
  }

  Config config() {
    Config config;
    config.model.n_layers = 2, config.model.dim = 16, config.model.n_heads = 2, config.model.vocab_size = 17;
    config.data.format = "tensor", config.data.train = {tokens("train.safetensors", 11, 2)};
    config.train.steps = 10, config.train.seq_len = 8, config.train.micro_batch = 2;
    config.train.global_batch = 2;
    config.optim.warmup_steps = 2, config.optim.lr = 0.01;
    config.precision.compute = "fp64";
    config.log.run_dir = dir_ / "run", config.log.plot = false, config.log.tensorboard = false;
    resolve(&config);
    return config;
  }

  std::vector<nlohmann::ordered_json> run(const Config& config) {
    EXPECT_TRUE(Trainer(config, env).run());
    return read_step_log(env, metrics_path(config.log.run_dir));
  }

  Checkpoint checkpoint(int64_t step) {
    return open_checkpoint(env, dir_ / "run/checkpoints/" + step_name(step));
  }

  TemporaryDir dir_;
};

double relative(double a, double b) { return std::abs(a - b) / std::abs(b); }

void expect_close(const at::Tensor& a, const at::Tensor& b, const std::string& name) {
  EXPECT_LT((a - b).abs().max().item<double>(), 1e-12 * b.abs().max().item<double>()) << name;
}

TEST_F(TrainerTest, EqualsAHandMadeLoop) {
  Config config = this->config();
  config.train.global_batch = 5;
  config.train.batch_ramp_start = 1, config.train.batch_ramp_increment = 2,
  config.train.batch_ramp_samples = 12;
  config.optim.weight_decay = 0.1, config.optim.weight_decay_end = 0.4,
  config.optim.weight_decay_schedule = "linear";
  config.optim.lr_multipliers = {"embed = 0.5", "layers\\.1.*mlp = 3"};
  config.optim.freeze = {"layers\\.0.*[qk]_proj", "model.norm"};
  config.optim.ema_decay = 0.8, config.optim.clip_norm = 0.5;
  const auto lines = run(config);
  const std::vector<int64_t> batches = {1, 1, 1, 1, 1, 1, 3, 3, 5, 5};  // 22 sequences: all there are
  ASSERT_EQ(lines.size(), batches.size());

  const auto data = open_train(config);
  Decoder decoder(config.model, at::kDouble);
  decoder.initialise(uint64_t(config.train.seed));
  set_update_rules(config.optim, decoder.params());
  struct State {
    at::Tensor m, v, ema;
  };
  std::map<const Param*, State> states;
  std::map<std::string, at::Tensor> initial;
  for (const Param* param : decoder.params()) {
    const at::Tensor zero = at::zeros_like(param->weight());
    states[param] = {zero, zero, param->weight().clone()};
    initial[param->name()] = param->weight().clone();
  }
  int64_t samples = 0;
  for (size_t i = 0; i < batches.size(); ++i) {
    const auto t = int64_t(i) + 1;
    const auto& line = lines[i];
    decoder.data_parallel().zero_grad();
    double loss = 0, squares = 0;
    for (int64_t s = 0; s < batches[i]; ++s) {  // micro-batches of one
      const auto one = make_micro_batches(*data, samples++, 1, {.seq_len = 8, .micro_batch = 1});
      loss += decoder.forward_backward(one[0], 1.0 / double(8 * batches[i]), {}, 0, 0);
    }
    for (const Param* param : decoder.params())
      if (param->trainable()) squares += param->grad().square().sum().item<double>();
    const double norm = std::sqrt(squares), scale = std::min(1.0, 0.5 / (norm + 1e-6));
    EXPECT_LT(relative(line.at("loss"), loss), 1e-12) << t;
    EXPECT_LT(relative(line.at("grad_norm"), norm), 1e-12) << t;
    EXPECT_EQ(line.at("global_batch"), batches[i]);
    EXPECT_EQ(line.at("targets"), 8 * batches[i]);
    EXPECT_EQ(line.at("tokens"), 8 * samples);
    const double decay = 0.1 + 0.3 * double(t) / 10;
    EXPECT_LT(relative(line.at("weight_decay"), decay), 1e-14);

    for (Param* param : decoder.params()) {
      auto& [m, v, ema] = states[param];
      at::Tensor w = param->weight();
      const std::string& name = param->name();
      const bool frozen = name == "model.norm.weight" ||
                          name.find("layers.0.self_attn.q_proj") != name.npos ||
                          name.find("layers.0.self_attn.k_proj") != name.npos;
      if (!frozen) {
        const at::Tensor g = param->grad() * scale;
        m = 0.9 * m + 0.1 * g;
        v = 0.95 * v + 0.05 * g * g;
        const double multiplier = name.find("embed") != name.npos          ? 0.5
                                  : name.find("layers.1.mlp") != name.npos ? 3
                                                                           : 1;
        const double lr = multiplier * learning_rate(config.optim, t);
        const double wd = param->shape().size() >= 2 ? decay : 0;
        const at::Tensor step = m / (1 - std::pow(0.9, t)) / ((v / (1 - std::pow(0.95, t))).sqrt() + 1e-8);
        w.mul_(1 - lr * wd).sub_(lr * step);
      }
      ema = 0.8 * ema + 0.2 * w;
    }
  }
  Decoder trained(config.model, at::kDouble), averaged(config.model, at::kDouble);
  load_weights(env, checkpoint(10), trained.params());
  load_weights(env, checkpoint(10), averaged.params(), kAverage);
  for (size_t i = 0; i < decoder.params().size(); ++i) {
    const Param& param = *decoder.params()[i];
    const at::Tensor weight = trained.params()[i]->weight(), average = averaged.params()[i]->weight();
    if (param.trainable()) {
      expect_close(weight, param.weight(), param.name());
      expect_close(average, states[&param].ema, param.name());
    } else {
      EXPECT_TRUE(at::equal(weight, initial[param.name()])) << param.name();
      EXPECT_TRUE(at::equal(average, initial[param.name()])) << param.name();
    }
    EXPECT_EQ(checkpoint(10).find("exp_avg", param.name()) != nullptr, param.trainable()) << param.name();
  }
}

TEST_F(TrainerTest, EvaluatesEachSourceAndTheAverage) {
  Config config = this->config();
  config.data.valid = {tokens("big.safetensors", 3, 2), tokens("small.safetensors", 1, 1)};
  config.train.eval_sequences = 4, config.train.eval_every = 5, config.train.micro_batch = 3;
  config.optim.ema_decay = 0.5;
  const auto lines = run(config);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i].contains("valid_loss"), i == 4 || i == 9);

  Decoder decoder(config.model, at::kDouble);
  const auto loss = [&](const std::string& path, int64_t sequences) {  // summed over its targets
    Config source = config;
    source.data.valid = {path};
    double sum = 0;
    for (int64_t s = 0; s < sequences; ++s)
      sum += decoder.loss(
          make_micro_batches(*open_valid(source)[0].samples, s, 1, {.seq_len = 8, .micro_batch = 1})[0], 1,
          0);
    return sum;
  };
  load_weights(env, checkpoint(10), decoder.params());
  const double big = loss(config.data.valid[0], 4), small = loss(config.data.valid[1], 1);
  const auto& last = lines.back();
  EXPECT_LT(relative(last.at("valid_loss/big.safetensors"), big / (4 * 8)), 1e-13);
  EXPECT_LT(relative(last.at("valid_loss/small.safetensors"), small / 8), 1e-13);
  EXPECT_LT(relative(last.at("valid_loss"), (big + small) / (5 * 8)), 1e-13);
  load_weights(env, checkpoint(10), decoder.params(), kAverage);
  const double average = loss(config.data.valid[0], 4) + loss(config.data.valid[1], 1);
  EXPECT_LT(relative(last.at("valid_loss_ema"), average / (5 * 8)), 1e-13);
  EXPECT_GT(relative(average, big + small), 1e-4) << "the average is something else";

  EXPECT_EQ(to_string(Evaluation{.loss = 1.5, .sources = {{"a", 1}, {"b", 2.25}}, .ema_loss = 1.25}),
            "validation loss 1.5000  (a 1.0000, b 2.2500)  with EMA weights 1.2500");
  EXPECT_EQ(to_string(Evaluation{.loss = 1.5, .sources = {}, .ema_loss = {}}), "validation loss 1.5000");
}

TEST_F(TrainerTest, ASkippedStepMovesNeitherWeightsNorAverage) {
  Config config = this->config();
  config.data.train = {tokens("long.safetensors", 40, 2)};
  config.train.steps = 40, config.train.spike_factor = 1.1;
  config.optim.ema_decay = 0.9;
  config.checkpoint.save_every = 1, config.checkpoint.keep_last = 0;
  int skipped = 0, applied = 0;
  for (const auto& line : run(config)) {
    const int64_t step = line.at("step");
    if (step == 1) continue;
    Decoder before(config.model, at::kDouble), after(config.model, at::kDouble);
    for (const char* kind : {kWeight, kAverage}) {
      load_weights(env, checkpoint(step - 1), before.params(), kind);
      load_weights(env, checkpoint(step), after.params(), kind);
      const bool same = at::equal(before.units()[1]->weights(), after.units()[1]->weights());
      EXPECT_EQ(same, line.contains("skipped")) << kind << " after step " << step;
    }
    ++(line.contains("skipped") ? skipped : applied);
  }
  EXPECT_GT(skipped, 0);
  EXPECT_GT(applied, 20);
}

// A token outside the vocabulary turns up in the validation data: the steps so far are saved and in the
// metrics.
TEST_F(TrainerTest, AnErrorWhileEvaluatingLosesNoStep) {
  Config config = this->config();
  config.train.eval_every = 4;
  const auto write = [&](const std::string& name, int32_t id) {
    IndexedDatasetWriter writer(dir_ / name, 40, env);
    std::vector<int32_t> ids(100, 3);
    ids[50] = id;
    writer.append(ids);
    writer.end_document();
    writer.finish();
    return std::vector<std::string>{dir_ / name};
  };
  config.data.format = "indexed", config.data.document_mask = false;
  config.data.train = write("train", 5), config.data.valid = write("valid", 17);
  config.train.eval_sequences = 0;
  EXPECT_THROW(Trainer(config, env).run(), Error);
  EXPECT_EQ(checkpoint(4).state.at("updates"), 4);
  EXPECT_EQ(read_step_log(env, metrics_path(config.log.run_dir)).size(), 4u);
}

TEST_F(TrainerTest, TakesUpACheckpointOfOtherExtras) {
  Config config = this->config();
  config.train.steps = 4;
  config.optim.freeze = {"embed"};
  run(config);
  EXPECT_EQ(checkpoint(4).find(kAverage, "model.norm.weight"), nullptr);
  config.train.steps = 6;
  config.optim.freeze = {"mlp"};
  config.optim.ema_decay = 1 - 1e-12;  // so that the average is nearly what it started as
  run(config);
  Decoder at_4(config.model, at::kDouble), average(config.model, at::kDouble),
      at_6(config.model, at::kDouble);
  load_weights(env, checkpoint(4), at_4.params());
  load_weights(env, checkpoint(6), at_6.params());
  load_weights(env, checkpoint(6), average.params(), kAverage);
  for (size_t i = 0; i < at_4.params().size(); ++i) {
    const Param& before = *at_4.params()[i];
    expect_close(average.params()[i]->weight(), before.weight(), before.name());
    const bool frozen = before.name().find("mlp") != std::string::npos;
    EXPECT_EQ(at::equal(at_6.params()[i]->weight(), before.weight()), frozen) << before.name();
  }
  config.train.steps = 7;
  config.optim.ema_decay = 0, config.optim.freeze = {};
  run(config);
  EXPECT_EQ(checkpoint(7).find(kAverage, "model.norm.weight"), nullptr);
}

}  // namespace
}  // namespace weft
