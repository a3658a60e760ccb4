#include "weft/report/step_log.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "weft/base/error.h"

#include "tests/base/fault_env.h"
#include "tests/base/temporary_dir.h"

namespace weft {
namespace {

TEST(StepLog, DropsWhatARestartRunsAgain) {
  const TemporaryDir dir;
  Env& env = Env::system();
  const std::string path = metrics_path(dir.path());
  {
    StepLog log(env, path, 0);
    for (int step = 1; step <= 4; ++step) log.append({{"step", step}, {"loss", 1.0 / step}});
  }
  std::ofstream(path, std::ios::app) << R"({"step":5,"lo)";  // torn by a crash
  EXPECT_EQ(read_step_log(env, path).size(), 4u);
  StepLog log(env, path, 3);
  EXPECT_EQ(read_step_log(env, path).size(), 3u);
  log.append({{"step", 4}, {"loss", 0.1 + 0.2}});
  EXPECT_EQ(env.read(path),
            "{\"step\":1,\"loss\":1.0}\n{\"step\":2,\"loss\":0.5}\n{\"step\":3,\"loss\":0.3333333333333333}\n"
            "{\"step\":4,\"loss\":0.30000000000000004}\n");
  EXPECT_EQ(read_step_log(env, dir / "none").size(), 0u);
}

TEST(StepLog, ALineTornByAFullDiskCostsNoOther) {
  const TemporaryDir dir;
  FaultEnv env;
  StepLog log(env, dir / "log.jsonl", 0);
  log.append({{"step", 1}});
  env.fill_disk_after(5);
  EXPECT_THROW(log.append({{"step", 2}}), Error);
  EXPECT_THROW(log.append({{"step", 3}}), Error);
  env.empty_disk();
  log.append({{"step", 4}, {"text", "a\xff\nb"}, {"loss", std::nan("")}});
  const auto lines = read_step_log(env, dir / "log.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["step"], 1);
  EXPECT_EQ(lines[1].dump(), R"({"step":4,"text":"a�\nb","loss":null})");
}

}  // namespace
}  // namespace weft
