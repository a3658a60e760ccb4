#include "weft/report/tensorboard.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/report/run_log.h"

#include "tests/base/fault_env.h"
#include "tests/base/temporary_dir.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// RFC 3720, appendix B.4, and the check value of the CRC catalogues.
TEST(Crc32c, HasItsPublishedValues) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending, descending;
  for (int i = 0; i < 32; ++i) ascending += char(i), descending += char(31 - i);
  EXPECT_EQ(crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(crc32c(descending), 0x113fdb5cu);
}

TEST(TensorBoard, RecordsAreThoseOfItsOwnWriter) {
  const std::string made =
      version_record(1700000000.25) + restart_record(1700000000.5, 300) +
      scalars_record(1700000001, 300,
                     {{"lm loss", 2.5f}, {"learning-rate", 1e-3f}, {"grad_norm", std::nanf("")}}) +
      text_record(1700000002, 5000000000, "sampled text/1", "    the quick brown föx\n    jumps");
  EXPECT_EQ(made, Env::system().read(WEFT_FIXTURES "/tensorboard/events.out.tfevents.golden"));
}

TEST(TensorBoard, MetricsGetTheNamesThatUsersKnow) {
  const Scalars scalars = tensorboard_scalars({{"step", 7},
                                               {"loss", 2.5},
                                               {"mfu", 0.25},
                                               {"rss_mb", 1073.741824},
                                               {"tflops", nullptr},
                                               {"skipped", "the loss is nan"},
                                               {"valid_loss/books", 3}});
  EXPECT_THAT(scalars,
              ElementsAre(std::pair("lm loss", 2.5f), std::pair("loss_metrics/global_avg_loss", 2.5f),
                          std::pair("mfu(%)", 25.f), std::pair("memory/max_active(GiB)", 1.f),
                          std::pair("validation_metrics/loss/books", 3.f)));
}

class EventFiles : public testing::Test {
 protected:
  TemporaryDir dir;
  FaultEnv env;
  std::string events(size_t file) {
    return env.read(dir / "tensorboard/" + env.list(dir / "tensorboard").at(file));
  }
};

TEST_F(EventFiles, SortBehindThoseOfEarlierSessions) {
  env.create_dirs(dir / "tensorboard");
  env.create(dir / "tensorboard/events.out.tfevents.3000000000.there.1");  // from a clock that runs ahead
  EventFile file(env, dir / "tensorboard");
  EXPECT_EQ(env.list(dir / "tensorboard").size(), 1u) << "no file without content";
  file.scalars(8, {{"lm loss", 1.f}});
  const auto names = env.list(dir / "tensorboard");
  ASSERT_EQ(names.size(), 2u);
  EXPECT_THAT(names[1], testing::StartsWith("events.out.tfevents.3000000001."));
  // version, restart and scalars: each with 16 bytes around its event
  const std::string scalars = scalars_record(0, 8, {{"lm loss", 1.f}});
  EXPECT_EQ(events(1).size(), version_record(0).size() + restart_record(0, 8).size() + scalars.size());
}

TEST_F(EventFiles, AFullDiskIsToldOnceAndEndsNothing) {
  Config config;
  config.log.run_dir = dir.path();
  std::vector<std::string> warnings;
  RunLog log(env, config, 0, [&](const std::string& text) { warnings.push_back(text); });
  log.metrics({{"step", 1}, {"loss", 3.0}});
  EXPECT_THAT(warnings, testing::IsEmpty());
  env.fill_disk_after(20);
  for (int step = 2; step < 5; ++step) log.metrics({{"step", step}, {"loss", 2.0}});
  log.sample(4, 0, "once", " upon");
  EXPECT_THAT(warnings,
              ElementsAre(HasSubstr("metrics.jsonl"), HasSubstr("tensorboard"), HasSubstr("samples.jsonl")));
  env.empty_disk();
  log.metrics({{"step", 5}, {"loss", 1.0}});
  log.sample(5, 0, "once", " upon");
  EXPECT_EQ(warnings.size(), 3u);
  EXPECT_EQ(read_step_log(env, metrics_path(dir.path())).back()["step"], 5);
  EXPECT_EQ(read_step_log(env, samples_path(dir.path())).back()["text"], " upon");
  const std::string last = events(env.list(dir / "tensorboard").size() - 1);
  EXPECT_EQ(last.substr(0, 12), version_record(0).substr(0, 12)) << "a new file, not behind a torn record";
  EXPECT_THAT(last, HasSubstr("sampled text/1"));
  EXPECT_THAT(last, HasSubstr("    once upon"));
}

}  // namespace
}  // namespace weft
