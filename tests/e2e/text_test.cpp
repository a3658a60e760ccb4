// From text to text through the shipped binary, and the commands around it.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "weft/base/safetensors.h"
#include "weft/report/step_log.h"

#include "tests/base/temporary_dir.h"
#include "tests/e2e/process.h"

namespace weft {
namespace {

using testing::HasSubstr;

class Text : public testing::Test {
 protected:
  TemporaryDir dir;

  Result weft(const std::vector<std::string>& arguments) { return run_weft(arguments, dir / "log"); }

  void write_text(const std::string& name, int repeat) {
    std::filesystem::create_directories(dir / "text");
    std::ofstream file(dir / "text/" + name);
    for (int i = 0; i < repeat; ++i) file << "the quick brown fox jumps over the lazy dog " << i % 10 << ". ";
  }

  std::vector<std::string> train_arguments() {
    return {"train", dir / "config.toml", "--set", "log.run_dir=" + (dir / "run")};
  }

  void prepare() {
    for (int i = 0; i < 5; ++i) write_text("doc" + std::to_string(i) + ".txt", 60 + i);
    const auto tokenizer = weft({"tokenizer", "train", "--input", dir / "text", "--vocab-size", "300",
                                 "--output", dir / "tokenizer.json"});
    ASSERT_EQ(tokenizer.status, 0) << tokenizer.output;
    const auto data = weft({"data", "build", "--input", dir / "text", "--tokenizer", dir / "tokenizer.json",
                            "--output", dir / "tokens"});
    ASSERT_EQ(data.status, 0) << data.output;
    std::ofstream(dir / "config.toml")
        << "[model]\nn_layers = 2\ndim = 32\nn_heads = 2\n[data]\ntrain = [\"" << dir / "tokens"
        << "\"]\ntokenizer = \"" << dir / "tokenizer.json"
        << "\"\nvalid_fraction = 0.2\n[train]\nsteps = 60\nseq_len = 32\nmicro_batch = 4\n"
        << "global_batch = 4\neval_every = 20\n[optim]\nlr = 1e-2\n"
        << "[log]\nbigram_baseline = true\n";
  }
};

TEST_F(Text, IsWrittenWithAveragedWeightsToo) {
  prepare();
  const auto written = [&](const std::string& ema_decay, bool ema) {
    auto arguments = train_arguments();
    arguments.insert(arguments.end(), {"--set", "log.run_dir=" + (dir / ema_decay), "--set",
                                       "optim.ema_decay=" + ema_decay, "--set", "log.bigram_baseline=false"});
    if (!Env::system().exists(dir / ema_decay)) {
      const auto trained = weft(arguments);
      EXPECT_EQ(trained.status, 0) << trained.output;
    }
    std::vector<std::string> generate = {"generate",  dir / ema_decay, "--prompt",
                                         "the quick", "--temperature", "0"};
    if (ema) generate.push_back("--ema");
    return weft(generate).output;
  };
  EXPECT_EQ(written("1e-9", true), written("1e-9", false)) << "an average of nothing but the last weights";
  EXPECT_NE(written("0.999999", true), written("0.999999", false))
      << "an average that is still the first weights";
  EXPECT_THAT(written("0", true), HasSubstr("holds no moving average of the weights: leave out --ema"));
}

TEST_F(Text, BecomesAModelThatWrites) {
  prepare();
  const auto trained = weft(train_arguments());
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_THAT(trained.output, HasSubstr("interpolated bigram"));
  EXPECT_THAT(trained.output, HasSubstr("all of it as a page: " + (dir / "run/report.html")));
  EXPECT_THAT(Env::system().read(dir / "run/report.html"), HasSubstr("bigram baseline"));

  const std::vector<std::string> generate = {"generate",     dir / "run", "--prompt",      "the quick",
                                             "--max-tokens", "12",        "--temperature", "0"};
  const auto written = weft(generate);
  ASSERT_EQ(written.status, 0) << written.output;
  EXPECT_THAT(written.output, testing::StartsWith("the quick brown fox jumps over"));
  EXPECT_EQ(weft(generate).output, written.output);

  const auto sampled = [&](const char* seed) {
    return weft({"generate", dir / "run", "--prompt", "", "--max-tokens", "30", "--temperature", "2",
                 "--seed", seed})
        .output;
  };
  EXPECT_EQ(sampled("1"), sampled("1"));
  EXPECT_NE(sampled("1"), sampled("2"));
}

TEST_F(Text, ShowsWhatTheModelWritesWithoutAnyEffectOnIt) {
  prepare();
  const auto arguments = [&](const std::string& run, const std::vector<std::string>& sets) {
    std::vector<std::string> all = {"train", dir / "config.toml", "--set", "log.run_dir=" + (dir / run)};
    for (const auto& set : sets) all.insert(all.end(), {"--set", set});
    return all;
  };
  const auto shown = weft(arguments(
      "run", {"log.sample_every=20", "log.sample_tokens=12", "log.sample_prompts=[\"the quick\", \"\"]"}));
  ASSERT_EQ(shown.status, 0) << shown.output;
  EXPECT_THAT(shown.output, HasSubstr("step 60  sample: the quick brown fox"));
  const auto samples = read_step_log(Env::system(), samples_path(dir / "run"));
  ASSERT_EQ(samples.size(), 6u);
  EXPECT_EQ(samples[4]["step"], 60);
  EXPECT_EQ(samples[4]["prompt"], "the quick");
  EXPECT_THAT(samples[4]["text"].get<std::string>(), testing::StartsWith(" brown fox"));
  const auto events = Env::system().list(dir / "run/tensorboard");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(Env::system().read(dir / "run/tensorboard/" + events[0]),
              testing::AllOf(HasSubstr("lm loss validation"), HasSubstr("    the quick brown fox")));

  ASSERT_EQ(weft(arguments("silent", {"log.sample_prompts=[]", "log.tensorboard=false"})).status, 0);
  EXPECT_FALSE(Env::system().exists(dir / "silent/tensorboard"));
  const auto losses = [&](const std::string& run) {
    std::vector<std::string> result;
    for (const auto& line : read_step_log(Env::system(), metrics_path(dir / run)))
      result.push_back(line.at("loss").dump());
    return result;
  };
  EXPECT_EQ(losses("run"), losses("silent"));
}

TEST_F(Text, ARunIsWatchedAndReportedOn) {
  prepare();
  EXPECT_THAT(weft({"watch", dir / "run", "--once"}).output, HasSubstr("waiting: there is no"));
  const auto none = weft({"report", dir / "run", dir / "text"});
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.output, testing::AllOf(HasSubstr("run does not exist"), HasSubstr("text is no run")));
  Process watch({"watch", dir / "run"}, dir / "watched");
  ASSERT_EQ(weft(train_arguments()).status, 0);
  EXPECT_EQ(watch.wait(), 0) << "it ends with the run";
  EXPECT_THAT(watch.output(), testing::AllOf(HasSubstr("step 60/60  loss "), HasSubstr("finished")));
  EXPECT_THAT(
      weft({"watch", dir / "run", "--once"}).output,
      testing::AllOf(HasSubstr("finished"), HasSubstr("⠒⠒ training"), HasSubstr("written at step 60")));

  const std::string made = Env::system().read(dir / "run/report.html");
  std::filesystem::remove(dir / "run/report.html");
  EXPECT_EQ(weft({"report", dir / "run"}).status, 0);
  EXPECT_EQ(Env::system().read(dir / "run/report.html"), made) << "as the trainer made it";
  std::filesystem::copy(dir / "run", dir / "other", std::filesystem::copy_options::recursive);
  ASSERT_EQ(weft({"report", dir / "run", dir / "other", "--output", dir / "both.html"}).status, 0);
  EXPECT_THAT(Env::system().read(dir / "both.html"), HasSubstr("2 runs compared"));
}

TEST_F(Text, TruncatedOrMissingDataIsNamed) {
  prepare();
  const auto size = std::filesystem::file_size(dir / "tokens.idx");
  std::filesystem::resize_file(dir / "tokens.idx", size - 3);
  auto result = weft(train_arguments());
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("tokens.idx"));
  std::filesystem::remove(dir / "tokens.idx");
  result = weft(train_arguments());
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("tokens.idx"));
  EXPECT_FALSE(Env::system().exists(dir / "run"));
}

TEST_F(Text, EmptyTextIsNamed) {
  prepare();
  std::filesystem::create_directories(dir / "empty");
  std::ofstream(dir / "empty/nothing.txt").close();
  for (const std::string& input : {dir / "empty", dir / "missing"}) {
    const auto result = weft(
        {"data", "build", "--input", input, "--tokenizer", dir / "tokenizer.json", "--output", dir / "none"});
    EXPECT_EQ(result.status, 1) << result.output;
    EXPECT_THAT(result.output, HasSubstr(input));
    EXPECT_FALSE(Env::system().exists(dir / "none.idx"));
  }
}

TEST_F(Text, LogitsOfAHuggingFaceFolder) {
  const std::string model = WEFT_FIXTURES "/hf/qwen3";
  const auto result = weft({"logits", model, "--input", model + "/expected.safetensors", "--output",
                            dir / "out.safetensors", "--grad", "--dtype", "fp64"});
  ASSERT_EQ(result.status, 0) << result.output;
  const SafetensorsFile made(Env::system(), dir / "out.safetensors");
  const SafetensorsFile expected(Env::system(), model + "/expected.safetensors");
  for (const auto& [name, info] : expected.header().tensors) {
    if (name == "input_ids") continue;
    EXPECT_EQ(made.info(name).dtype, "F64") << name;
    EXPECT_EQ(made.info(name).shape, info.shape) << name;
  }
  const auto missing =
      weft({"logits", model, "--input", model + "/model.safetensors", "--output", dir / "none"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.output, HasSubstr("input_ids"));
}

TEST_F(Text, UsageErrorsHaveTheirOwnStatus) {
  EXPECT_EQ(weft({"--help"}).status, 0);
  EXPECT_EQ(weft({"--version"}).status, 0);
  EXPECT_EQ(weft({"trian"}).status, 2);
  EXPECT_THAT(weft({"trian"}).output, HasSubstr("train"));
  EXPECT_EQ(weft({"generate", dir / "nowhere", "--prompt", "x"}).status, 1);
}

}  // namespace
}  // namespace weft
