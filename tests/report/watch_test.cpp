#include "weft/report/watch.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/run_lock.h"

#include "tests/base/temporary_dir.h"
#include "tests/report/run_dir.h"

namespace weft {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(MetricsReader, FollowsAFileThatGrowsAndStartsAgain) {
  const TemporaryDir dir;
  Env& env = Env::system();
  MetricsReader reader(env, dir.path());
  EXPECT_FALSE(reader.poll()) << "there is no file";
  const auto add = [&](const std::string& text) {
    std::ofstream(metrics_path(dir.path()), std::ios::app) << text;
  };
  add("{\"step\":1,\"loss\":3.5}\n{\"step\":2,\"lo");
  EXPECT_TRUE(reader.poll());
  EXPECT_FALSE(reader.poll());
  EXPECT_EQ(reader.metrics().step, std::vector<int64_t>{1});
  add("ss\":2.5,\"valid_loss\":4}\n{\"step\":3,\"loss\":null}\nnot json\n{\"step\":4,\"loss\":1.5}\n");
  EXPECT_TRUE(reader.poll());
  EXPECT_EQ(reader.metrics().points("loss"), (Points{{1, 3.5}, {2, 2.5}, {4, 1.5}}));
  EXPECT_EQ(reader.metrics().points("valid_loss", 2), (Points{{2, 8}}));
  EXPECT_EQ(reader.metrics().last("valid_loss"), 4);
  EXPECT_EQ(reader.metrics().row_of(4), 3u);

  // The run goes on from step 2, and is further than before when the reader looks again.
  StepLog log(env, metrics_path(dir.path()), 2);
  for (int step = 3; step < 9; ++step) log.append({{"step", step}, {"loss", 0.5}});
  EXPECT_TRUE(reader.poll());
  EXPECT_EQ(reader.metrics().step.size(), 8u);
  EXPECT_EQ(reader.metrics().points("loss")[2], (std::pair<double, double>(3, 0.5)));
}

class Watch : public testing::Test {
 protected:
  TemporaryDir dir;
  Config config;
  RunWatch watch{Env::system(), dir / "run"};

  std::string frame(int columns = 80, int rows = 24) {
    watch.poll();
    return watch.frame({columns, rows}, false);
  }
};

TEST_F(Watch, WaitsForTheFirstStep) {
  EXPECT_THAT(frame(), HasSubstr("waiting: there is no " + dir / "run"));
  write_run(dir / "run", config, 0);
  EXPECT_THAT(frame(), HasSubstr("no process trains in"));
  const RunLock lock(dir / "run");
  EXPECT_THAT(frame(), HasSubstr("waiting: the first step of"));
  EXPECT_EQ(watch.state(), RunState::kWaiting);
}

TEST_F(Watch, ShowsWhereTheRunIs) {
  config.train.steps = 100, config.train.seq_len = 50, config.train.global_batch = 16;
  write_run(dir / "run", config, 40, [](auto& line) {
    if (line["step"] == 20) line["valid_loss"] = 1.25;
    if (line["step"] == 40) line["valid_loss"] = 1.5, line["baseline"] = 4.0;
  });
  write_sample(dir / "run", 40, "Once", " upon\n a\x1b[2J time");
  {
    const RunLock lock(dir / "run");
    const std::string text = frame();
    EXPECT_THAT(text, HasSubstr("running, 16 min 00 s left")) << "60 steps of 16 * 50 tokens, 50 a second";
    EXPECT_THAT(text, HasSubstr(" step 40 of 100, 40%"));
    EXPECT_THAT(text, HasSubstr("validation        1.5000"));
    EXPECT_THAT(text, HasSubstr("best validation loss 1.2500, at step 20"));
    EXPECT_THAT(text, HasSubstr("written at step 40:\nOnce upon a [2J time\n"));
    EXPECT_THAT(text, AllOf(HasSubstr("⠒⠒ training"), HasSubstr("● validation"), Not(HasSubstr("\x1b"))));
    EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 24) << "it fits the screen";
    for (const char* const number : {"step 40/100  loss 0.2500", "validation 1.5000", "tokens/s 50"})
      EXPECT_THAT(watch.line(), HasSubstr(number));
  }
  EXPECT_THAT(frame(), HasSubstr("stopped"));
  EXPECT_EQ(watch.state(), RunState::kStopped);
  StepLog log(Env::system(), metrics_path(dir / "run"), 40);
  for (int64_t step = 41; step <= 100; ++step) log.append(metrics_line(step));
  EXPECT_THAT(frame(), AllOf(HasSubstr("finished"), HasSubstr("step 100 of 100")));
  EXPECT_EQ(watch.state(), RunState::kFinished);
}

// Texts are sampled after their step's metrics are written.
TEST_F(Watch, SeesATextThatComesAfterTheMetrics) {
  write_run(dir / "run", config, 3);
  EXPECT_THAT(frame(), Not(HasSubstr("written at step")));
  write_sample(dir / "run", 3, "Once", " upon a time");
  EXPECT_TRUE(watch.poll());
  EXPECT_FALSE(watch.poll());
  EXPECT_THAT(frame(), HasSubstr("written at step 3:\nOnce upon a time"));
}

TEST_F(Watch, AnEarlyStopIsTheEnd) {
  write_run(dir / "run", config, 3, [](auto& line) {
    if (line["step"] == 3) line["early_stop"] = "no better validation loss";
  });
  watch.poll();
  EXPECT_EQ(watch.state(), RunState::kFinished);
}

TEST_F(Watch, FillsTheScreenThatItHas) {
  write_run(dir / "run", config, 40);
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  EXPECT_EQ(lines(frame(100, 30)), 29);
  EXPECT_LT(lines(frame(100, 50)), 49) << "a plot has enough";
  EXPECT_GT(frame(150, 30).size(), frame(60, 30).size());
  EXPECT_THAT(frame(1, 1), HasSubstr("loss"));
}

TEST_F(Watch, BreaksTextsBetweenWords) {
  write_run(dir / "run", config, 2);
  write_sample(dir / "run", 2, "", std::string(30, 'a') + " " + std::string(20, 'b') + std::string(90, 'c'));
  EXPECT_THAT(frame(41), HasSubstr("\n" + std::string(30, 'a') + " \n" + std::string(20, 'b') +
                                   std::string(20, 'c') + "\n" + std::string(39, 'c') + "…\n"));
}

TEST_F(Watch, KnowsNoPlanWithoutAConfig) {
  write_run(dir / "run", config, 3);
  Env::system().remove_all(dir / "run/config.toml");
  EXPECT_THAT(frame(), AllOf(HasSubstr("step 3\n"), Not(HasSubstr(" of "))));
}

}  // namespace
}  // namespace weft
