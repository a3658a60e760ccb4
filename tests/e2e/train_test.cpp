// The shipped binary trains: the reference run, restarts after kill -9 and signals, damaged checkpoints, bad
// input.
#include <cstring>
#include <fstream>
#include <random>

#include <gmock/gmock.h>

#include "tests/e2e/train_fixture.h"

namespace weft {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kTiny = WEFT_FIXTURES "/llama-tiny";

class Reference : public Train {
 protected:
  void check_reference(const std::string& precision, double bound);
};

void Reference::check_reference(const std::string& precision, double bound) {
  std::ofstream(dir / "tiny.toml") << "[model]\nfrom_hf = \"" << kTiny
                                   << "\"\n[data]\nformat = \"tensor\"\ntrain = [\"" << kTiny
                                   << "/tokens.safetensors\"]\n"
                                   << "[train]\nsteps = 20\nseq_len = 64\nmicro_batch = 3\nglobal_batch = 8\n"
                                   << "[optim]\nlr = 3e-4\nschedule = \"constant\"\ndecay = \"all\"\n"
                                   << "[memory]\nloss_chunk = 100\n";
  const auto result =
      run_weft(train(dir / "tiny.toml", "run", {"precision.compute=" + precision}), dir / "log");
  ASSERT_EQ(result.status, 0) << result.output;
  const auto expected = nlohmann::json::parse(
      env.read(kTiny + "/expected.json"))["steps"][precision == "fp64" ? "float64" : "float32"];
  const auto lines = metrics(dir / "run");
  ASSERT_EQ(lines.size(), 20u);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["step"], i + 1);
    for (const char* key : {"loss", "grad_norm"}) {
      const double wanted = expected[i][key];
      EXPECT_NEAR(lines[i][key].get<double>(), wanted, bound * wanted) << key << " of step " << i + 1;
    }
  }
}

TEST_F(Reference, EqualsTheReferenceRunInFp64) {
  check_reference("fp64", 1e-10);
  const SafetensorsFile made(env, dir / "run/checkpoints/step-00000020/rank-00000.safetensors");
  size_t compared = 0;
  for (const char* part : {"layers", "rest"}) {
    const SafetensorsFile wanted(env, kTiny + "/final-" + part + ".safetensors");
    for (const auto& [name, info] : wanted.header().tensors) {
      const auto a = made.data(name), b = wanted.data(name);
      ASSERT_EQ(a.size(), b.size()) << name;
      double difference = 0, largest = 0;
      for (size_t i = 0; i < a.size(); i += 8) {
        double x, y;
        std::memcpy(&x, &a[i], 8), std::memcpy(&y, &b[i], 8);
        difference = std::max(difference, std::abs(x - y)), largest = std::max(largest, std::abs(y));
      }
      EXPECT_LT(difference, 1e-10 * largest) << name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 21u);
}

TEST_F(Reference, EqualsTheReferenceRunInFp32) { check_reference("fp32", 1e-5); }

TEST_F(Train, ResumesBitwiseAfterKillsDuringSaves) {
  const std::string config = small_config();
  const std::vector<std::string> sets = {"train.steps=60"};
  ASSERT_EQ(run_weft(train(config, "whole", sets), dir / "log").status, 0) << env.read(dir / "log");
  std::mt19937 random(7);
  int kills = 0;
  const auto saving = [&] {
    for (const auto& name : env.list(dir / "broken/checkpoints"))
      if (name.rfind(".tmp-", 0) == 0) return true;
    return false;
  };
  while (kills < 20) {
    Process process(train(config, "broken", sets), dir / "log");
    ASSERT_TRUE(process.wait_until(saving))
        << "the run ended before it was killed 20 times: " << process.output();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 12000));
    process.signal(SIGKILL);
    ASSERT_EQ(process.wait(), 128 + SIGKILL) << process.output();
    ++kills;
  }
  const auto result = run_weft(train(config, "broken", sets), dir / "log");
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(curve(dir / "broken"), curve(dir / "whole"));
  EXPECT_EQ(final_weights("broken", 60), final_weights("whole", 60));
  EXPECT_EQ(env.list(dir / "broken/checkpoints").size(), 3u) << "keep_last";
}

TEST_F(Train, SavesAndExitsOnSignals) {
  const std::string config = small_config();
  ASSERT_EQ(run_weft(train(config, "whole"), dir / "log").status, 0) << env.read(dir / "log");
  for (const int signal : {SIGTERM, SIGINT}) {
    Process process(train(config, "stopped", {"checkpoint.save_every=0"}), dir / "log");
    const size_t lines_before = metrics_so_far("stopped");
    ASSERT_TRUE(process.wait_until([&] { return metrics_so_far("stopped") > lines_before + 2; }));
    process.signal(signal);
    EXPECT_EQ(process.wait(), 0);
    EXPECT_THAT(process.output(), HasSubstr("the same command continues"));
  }
  ASSERT_EQ(run_weft(train(config, "stopped"), dir / "log").status, 0);
  EXPECT_EQ(curve(dir / "stopped"), curve(dir / "whole"));
}

TEST_F(Train, OutlivesWhoeverReadsItsOutput) {
  const std::string config = small_config();
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  close(pipe_ends[0]);  // nobody reads
  const auto result =
      run_weft(train(config, "run"), dir / "log", [&] { dup2(pipe_ends[1], 1), dup2(pipe_ends[1], 2); });
  close(pipe_ends[1]);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(metrics(dir / "run").size(), 40u);
}

TEST_F(Train, SaysWhatChangedSinceTheCheckpoint) {
  const std::string config = small_config();
  ASSERT_EQ(run_weft(train(config, "run", {"train.steps=10"}), dir / "log").status, 0);
  const auto result = run_weft(train(config, "run", {"train.steps=12", "optim.lr=1e-4"}), dir / "log");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output,
              HasSubstr("the checkpoint was made with optim.lr = 0.001; the run goes on with 0.0001"));
  EXPECT_THAT(result.output, HasSubstr("train.steps = 10"));
  EXPECT_THAT(result.output, Not(HasSubstr("optim.beta1")));
}

TEST_F(Train, UsesTheLastGoodCheckpointWhenOneIsDamaged) {
  const std::string config = small_config();
  ASSERT_EQ(run_weft(train(config, "whole"), dir / "log").status, 0) << env.read(dir / "log");
  ASSERT_EQ(run_weft(train(config, "run", {"train.steps=10", "optim.decay_steps=40"}), dir / "log").status,
            0);
  const std::string file = dir / "run/checkpoints/step-00000010/rank-00000.safetensors";
  {
    std::fstream damaged(file, std::ios::in | std::ios::out | std::ios::binary);
    damaged.seekg(5000);
    const char byte = char(damaged.get() ^ 4);
    damaged.seekp(5000);
    damaged.put(byte);
  }
  const auto result = run_weft(train(config, "run"), dir / "log");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr("step-00000010/rank-00000.safetensors"));
  EXPECT_THAT(result.output, HasSubstr("resuming after step 9"));
  EXPECT_EQ(curve(dir / "run"), curve(dir / "whole"));
}

TEST_F(Train, TellsOfBadInputBeforeWorkIsLost) {
  const std::string config = small_config();
  const auto failing = [&](const std::vector<std::string>& sets, const std::string& run = "bad") {
    const auto result = run_weft(train(config, run, sets), dir / "log");
    EXPECT_EQ(result.status, 1) << result.output;
    return result.output;
  };
  EXPECT_THAT(failing({"data.train=" + (dir / "nothing.safetensors")}), HasSubstr("nothing.safetensors"));
  EXPECT_THAT(failing({"train.steps=201"}), HasSubstr("200"));
  EXPECT_THAT(failing({"model.vocab_size=30"}), HasSubstr("30"));
  EXPECT_THAT(failing({"train.seq_len=16"}), HasSubstr("17"));
  EXPECT_THAT(failing({"optim.lr=fast", "model.n_layer=3"}),
              testing::AllOf(HasSubstr("optim.lr"), HasSubstr("n_layers"), HasSubstr("--set")));
  EXPECT_THAT(failing({}, "config.toml/run"), HasSubstr("config.toml/run"));

  // A run that stops keeps the steps before the bad one.
  const std::string stopped =
      failing({"train.on_bad_step=stop", "train.spike_factor=1.01", "checkpoint.save_every=0"}, "spike");
  EXPECT_THAT(stopped, HasSubstr("stopped before the update"));
  EXPECT_EQ(env.list(dir / "spike/checkpoints"),
            std::vector<std::string>{fmt::format("step-{:08}", metrics(dir / "spike").size())});

  ASSERT_EQ(run_weft(train(config, "good", {"train.steps=6"}), dir / "log").status, 0)
      << env.read(dir / "log");
  EXPECT_THAT(failing({"model.ffn_dim=100"}, "good"), HasSubstr("mlp.up_proj.weight"));
}

TEST_F(Train, ProfilesStepsWithoutChangingThem) {
  const std::string config = small_config();
  ASSERT_EQ(run_weft(train(config, "plain", {"train.steps=6"}), dir / "log").status, 0);
  auto arguments = train(config, "profiled", {"train.steps=6"});
  arguments.insert(arguments.end(), {"--profile", "2-3"});
  auto result = run_weft(arguments, dir / "log");
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(curve(dir / "profiled"), curve(dir / "plain"));
  EXPECT_EQ(final_weights("profiled", 6), final_weights("plain", 6));
  EXPECT_FALSE(env.exists(dir / "plain/trace.json"));

  EXPECT_THAT(result.output, HasSubstr("where the time of steps 2-3 went:\nop "));
  EXPECT_THAT(result.output, HasSubstr("the whole trace: " + (dir / "profiled/trace.json")));
  const auto trace = nlohmann::json::parse(env.read(dir / "profiled/trace.json"));
  int steps = 0, saves = 0, heads = 0;
  for (const auto& event : trace.at("traceEvents")) {
    steps += event.at("name") == "step 2" || event.at("name") == "step 3";
    saves += event.at("name") == "checkpoint";
    heads += event.at("name") == "head backward";
  }
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(saves, 2);
  EXPECT_EQ(heads, 2 * 2) << "micro-batches";

  const auto times = nlohmann::json::parse(env.read(dir / "profiled/op_times.json"));
  EXPECT_EQ(times.at("steps"), 6);
  int64_t calls = 0;
  for (const auto& op : times.at("ops"))
    if (op.at("op") == "linear" && op.at("pass") == "backward") calls += op.at("calls").get<int64_t>();
  EXPECT_EQ(calls, 6 * 2 * 2 * 4) << "steps, micro-batches, layers, linears";

  arguments = train(config, "profiled", {"train.steps=8"});
  arguments.push_back("--profile");
  EXPECT_THAT(run_weft(arguments, dir / "log").output, HasSubstr("where the time of step 8 went:"));
  arguments.push_back("4-2");
  EXPECT_THAT(run_weft(arguments, dir / "log").output, HasSubstr("log.profile=4-2: expected a first step"));
}

TEST_F(Train, AFullDiskLeavesTheGoodCheckpoint) {
  const std::string config = small_config();
  ASSERT_EQ(run_weft(train(config, "run", {"train.steps=5"}), dir / "log").status, 0)
      << env.read(dir / "log");
  const std::string before = final_weights("run", 5);
  const auto limited = [](rlim_t bytes) {
    return [bytes] {
      const rlimit limit{bytes, bytes};
      setrlimit(RLIMIT_FSIZE, &limit);
    };
  };
  // Too little room is said at once, before any step; room that turns out too small, at the save.
  auto result = run_weft(train(config, "run"), dir / "log", limited(20000));
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("a checkpoint takes"));
  result = run_weft(train(config, "run", {"train.steps=8"}), dir / "log", limited(before.size() - 100));
  EXPECT_EQ(result.status, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("rank-00000.safetensors"));
  EXPECT_EQ(final_weights("run", 5), before);
  EXPECT_EQ(run_weft(train(config, "run"), dir / "log").status, 0);
  ASSERT_EQ(run_weft(train(config, "whole"), dir / "log").status, 0);
  EXPECT_EQ(curve(dir / "run"), curve(dir / "whole"));
}

}  // namespace
}  // namespace weft
