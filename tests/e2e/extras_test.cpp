// The training extras through the shipped binary: batch ramp, frozen parameters, averaged weights, early
// stop.
#include <cstring>

#include <gmock/gmock.h>

#include "tests/e2e/train_fixture.h"

namespace weft {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Extras : public Train {
 protected:
  const std::vector<std::string> ramp = {"train.global_batch=6", "train.batch_ramp_start=2",
                                         "train.batch_ramp_increment=1", "train.batch_ramp_samples=100"};

  std::string validation_tokens(const std::string& name, uint64_t seed, int64_t sequences) {
    std::vector<int64_t> tokens(size_t(sequences * 18));
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = philox(seed, i)[0] % 31;
    write_safetensors(env, dir / name,
                      {{"tokens", "I64", {1, sequences, 18}, std::as_bytes(std::span(tokens))}});
    return dir / name;
  }

  Result train_with(const std::string& run, std::vector<std::string> sets) {
    return run_weft(train(small_config(), run, sets), dir / "log");
  }

  SafetensorsFile state(const std::string& run, int step) {
    return SafetensorsFile(env,
                           dir / run + fmt::format("/checkpoints/step-{:08}/rank-00000.safetensors", step));
  }
};

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

TEST_F(Extras, AKillInMidRampChangesNothing) {
  std::vector<std::string> sets = ramp;
  sets.insert(sets.end(),
              {"optim.ema_decay=0.9", "optim.weight_decay_schedule=cosine", "optim.weight_decay_end=0.3"});
  const auto whole = train_with("whole", sets);
  ASSERT_EQ(whole.status, 0) << whole.output;
  int64_t samples = 0;
  for (const auto& line : metrics(dir / "whole")) {
    EXPECT_EQ(line["global_batch"], samples >= 100 ? 6 : 2 + samples / 25);
    samples += line["global_batch"].get<int64_t>();
    EXPECT_EQ(line["tokens"], 17 * samples);
  }
  EXPECT_EQ(metrics(dir / "whole").front()["global_batch"], 2);
  EXPECT_EQ(metrics(dir / "whole").back()["global_batch"], 6);

  for (const size_t lines : {8, 17, 21}) {
    Process process(train(small_config(), "broken", sets), dir / "log");
    ASSERT_TRUE(process.wait_until([&] { return metrics_so_far("broken") >= lines; })) << process.output();
    process.signal(SIGKILL);
    ASSERT_EQ(process.wait(), 128 + SIGKILL);
  }
  const auto result = train_with("broken", sets);
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(curve(dir / "broken"), curve(dir / "whole"));
  EXPECT_EQ(final_weights("broken", 40), final_weights("whole", 40)) << "the average is in there too";
}

TEST_F(Extras, ARampTakesAsManySamplesAsItSays) {
  std::vector<std::string> sets = ramp;
  sets.push_back("train.steps=116");  // the file's 600 sequences hold 115 steps of the ramp
  const auto result = train_with("long", sets);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, AllOf(HasSubstr("holds 600 sequences"), HasSubstr("train.steps = 116")));
}

TEST_F(Extras, FrozenParametersKeepTheirBits) {
  const std::vector<std::string> sets = {"optim.freeze=['embed_tokens', 'layers.0.*(q|up)_proj']",
                                         "optim.decay=all",
                                         "optim.weight_decay=10",
                                         "optim.ema_decay=0.7",
                                         "optim.clip_norm=0.01",
                                         "checkpoint.keep_last=0"};
  const auto result = train_with("run", sets);
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("of them trainable"));
  const SafetensorsFile first = state("run", 1), last = state("run", 40);
  for (const auto& [name, info] : last.header().tensors) {
    if (name.starts_with("exp_avg") || name.starts_with("ema.")) continue;
    const bool frozen = name == "model.embed_tokens.weight" ||
                        name == "model.layers.0.self_attn.q_proj.weight" ||
                        name == "model.layers.0.mlp.up_proj.weight";
    EXPECT_EQ(same_bytes(first.data(name), last.data(name)), frozen) << name;
    EXPECT_EQ(same_bytes(last.data("ema." + name), last.data(name)), frozen) << name;
    EXPECT_EQ(last.header().tensors.contains("exp_avg." + name), !frozen) << name;
  }
  EXPECT_THAT(train_with("bad", {"optim.freeze=['mlp', 'lm_head']"}).output,
              HasSubstr("optim.freeze: \"lm_head\" matches no parameter"));
  EXPECT_THAT(train_with("bad", {"optim.freeze=model"}).output, HasSubstr("nothing is left to train"));
  EXPECT_THAT(train_with("bad", {"optim.lr_multipliers=mlp = x"}).output,
              HasSubstr("expected \"REGEX = NUMBER\""));
  EXPECT_FALSE(env.exists(dir / "bad"));
}

TEST_F(Extras, AnEarlyStopIsAnOrderlyEnd) {
  // Nothing is learnt from random tokens at this rate: the first evaluation stays the best.
  const std::vector<std::string> sets = {"data.valid=" + validation_tokens("valid", 9, 4),
                                         "train.eval_every=5",
                                         "train.early_stop_patience=2",
                                         "train.early_stop_min_delta=1",
                                         "checkpoint.save_every=0",
                                         "checkpoint.save_final=false"};
  auto cut_short = sets;
  cut_short.insert(cut_short.end(), {"train.steps=7", "checkpoint.save_final=true", "optim.decay_steps=40"});
  ASSERT_EQ(train_with("run", cut_short).status, 0) << env.read(dir / "log");
  const auto result = train_with("run", sets);  // the evaluation of the end, step 7, does not count
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(
      result.output,
      HasSubstr("stopped early after step 15: no better validation loss in 2 evaluations; the best was"));
  EXPECT_THAT(result.output, HasSubstr("after step 5 "));
  EXPECT_EQ(metrics(dir / "run").size(), 15u);
  EXPECT_TRUE(metrics(dir / "run").back().contains("early_stop"));

  const auto whole = train_with("whole", sets);
  EXPECT_EQ(whole.status, 0);
  EXPECT_THAT(whole.output, HasSubstr("stopped early after step 15"));
  EXPECT_THAT(whole.output, Not(HasSubstr("the same command continues")));
  EXPECT_EQ(env.list(dir / "whole/checkpoints"), std::vector<std::string>{"step-00000015"});
  EXPECT_TRUE(env.exists(dir / "whole/report.html"));
  const auto again = train_with("whole", sets);
  EXPECT_EQ(again.status, 0);
  EXPECT_THAT(again.output, HasSubstr("stopped early after step 15"));
  EXPECT_EQ(metrics(dir / "whole").size(), 15u);
  auto patient = sets;
  patient.push_back("train.early_stop_patience=3");
  EXPECT_THAT(train_with("whole", patient).output, HasSubstr("stopped early after step 20"));
}

TEST_F(Extras, SourcesAndTheAverageAreEvaluatedApart) {
  const auto result = train_with("run", {"data.valid=['" + validation_tokens("books", 9, 4) + "', '" +
                                             validation_tokens("web", 8, 1) + "']",
                                         "train.eval_every=20", "optim.ema_decay=0.99"});
  ASSERT_EQ(result.status, 0) << result.output;
  const auto last = metrics(dir / "run").back();
  const double books = last["valid_loss/books"], web = last["valid_loss/web"], all = last["valid_loss"];
  EXPECT_NEAR(all, (4 * books + web) / 5, 1e-6);
  EXPECT_THAT(result.output,
              HasSubstr(fmt::format(
                  "step 40  validation loss {:.4f}  (books {:.4f}, web {:.4f})  with EMA weights {:.4f}\n",
                  all, books, web, last["valid_loss_ema"].get<double>())));
}

}  // namespace
}  // namespace weft
