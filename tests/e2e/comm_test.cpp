// What a run of several ranks writes down of its communication, and who reads it.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/comm/recordings.h"

#include "tests/e2e/train_fixture.h"

namespace weft {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class Communication : public Train {
 protected:
  /// Starts three ranks that train for long, does this to the last one's process, and waits for the end.
  Result after(const std::function<void(pid_t)>& deed) {
    std::vector<std::string> arguments = train(small_config(), "run",
                                               {"train.steps=200", "parallel.zero=3", "comm.timeout=4",
                                                "checkpoint.save_every=0", "checkpoint.save_final=false"});
    arguments.insert(arguments.end(), {"--ranks", "3"});
    Process process(arguments, dir / "log");
    EXPECT_TRUE(process.wait_until([&] { return metrics_so_far("run") >= 3; })) << process.output();
    deed(pid_t(read_recordings(env, dir / "run").back().header.pid));
    const int status = process.wait();
    return {status, process.output()};
  }

  std::string compare() {
    const Result result = run_weft({"comm", "compare", dir / "run"}, dir / "compare");
    EXPECT_EQ(result.status, 0);
    return result.output;
  }
};

TEST_F(Communication, ARankThatStopsIsNamed) {
  const Result result = after([](pid_t rank) { kill(rank, SIGSTOP); });
  EXPECT_EQ(result.status, 1);
  const auto says_so = AllOf(ContainsRegex("-> (rank 2 has not issued #|all have issued #)"),
                             HasSubstr("rank 2 (process "), HasSubstr("has given no sign of life for "));
  EXPECT_THAT(result.output,
              AllOf(ContainsRegex("over .* waited 4 s for ranks? .*2 \\(comm.timeout\\)"), says_so));
  EXPECT_THAT(compare(),
              AllOf(HasSubstr("a job of 3 ranks, started "), HasSubstr("dp_shard: ranks 0 to 2\n")));
}

TEST_F(Communication, WhatARankDidLastOutlastsIt) {
  const Result result = after([](pid_t rank) { kill(rank, SIGKILL); });
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(compare(), AllOf(HasSubstr("a job of 3 ranks, started "), HasSubstr("dp_shard: ranks 0 to 2\n"),
                               HasSubstr("of ")));
  for (const Recording& recording : read_recordings(env, dir / "run"))
    EXPECT_FALSE(recording.records.empty());
}

TEST_F(Communication, NothingToCompare) {
  const Result result = run_weft({"comm", "compare", dir / "absent"}, dir / "log");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("weft: error: there are no recordings (rank-00000.ring, …) in "));
}

TEST_F(Communication, BenchPrintsATable) {
  const Result result = run_weft({"bench", "comm", "--ranks", "2", "--min-bytes", "4096", "--max-bytes",
                                  "32768", "--operation", "all_gather", "--log-dir", dir / "logs"},
                                 dir / "log");
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(
      result.output,
      AllOf(HasSubstr("2 ranks, fp32; "), ContainsRegex("operation +path +bytes +us +algbw +busbw\n"),
            ContainsRegex("all_gather +messages +4096 "), ContainsRegex("all_gather +messages +32768 "),
            ContainsRegex("all_gather +shared +32768 ")));
}

TEST_F(Communication, BenchNeedsSomeoneToTalkTo) {
  const Result result = run_weft({"bench", "comm"}, dir / "log");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("start more, as with --ranks 2"));
}

}  // namespace
}  // namespace weft
