// Runs on several ranks: that they start, end and fail as one, and leave nothing behind.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>

#include <sched.h>
#include <stdlib.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/run_lock.h"

#include "tests/e2e/train_fixture.h"

namespace weft {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kNoSaves = {"checkpoint.save_every=0", "checkpoint.save_final=false"};
const std::vector<std::string> kEndless = {"checkpoint.save_every=0", "checkpoint.save_final=false",
                                           "train.steps=200"};

int64_t occurrences(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

class Ranks : public Train {
 protected:
  // Everything that this test starts has the marker in its environment.
  const std::string marker = fmt::format("WEFT_TEST_MARKER={}", (dir / "").c_str());
  const std::string config = small_config();

  std::function<void()> marked(const std::function<void()>& then = {}) {
    return [this, then] {
      putenv(const_cast<char*>(marker.c_str()));
      if (then) then();
    };
  }

  std::vector<std::string> train_on(int ranks, const std::string& run, const std::vector<std::string>& sets) {
    std::vector<std::string> arguments = train(config, run, sets);
    arguments.insert(arguments.end(), {"--ranks", std::to_string(ranks)});
    return arguments;
  }

  // Runs mpirun with these arguments instead of weft.
  static std::function<void()> mpirun(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"});
    return [arguments]() mutable {
      std::vector<char*> argv;
      for (auto& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      execvp("mpirun", argv.data());
      _exit(127);
    };
  }

  // Processes that this test has started and that live, with their environment.
  std::map<pid_t, std::string> processes() const {
    std::map<pid_t, std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const pid_t pid = pid_t(std::atoll(entry.path().filename().c_str()));
      if (pid <= 0 || pid == getpid()) continue;
      std::ifstream file(entry.path() / "environ", std::ios::binary);  // empty for a zombie
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      if (text.find(marker) != std::string::npos) found[pid] = text;
    }
    return found;
  }

  pid_t process_of_rank(int rank) const {
    for (const auto& [pid, text] : processes())
      if (text.find(fmt::format("OMPI_COMM_WORLD_RANK={}", rank)) != std::string::npos) return pid;
    return -1;
  }

  pid_t process_named(const std::string& name) const {
    for (const auto& [pid, text] : processes()) {
      std::string comm;
      std::ifstream(fmt::format("/proc/{}/comm", pid)) >> comm;
      if (comm == name) return pid;
    }
    return -1;
  }

  // Whoever has been told to end may need a moment.
  void expect_nothing_left(const std::string& run) {
    for (int i = 0; i < 500 && (!processes().empty() || run_is_locked(dir / run)); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(processes().empty());
    EXPECT_FALSE(run_is_locked(dir / run));
    for (const auto& [pid, text] : processes()) kill(pid, SIGKILL);
  }

  void wait_for_steps(const Process& process, const std::string& run, size_t steps) {
    ASSERT_TRUE(process.wait_until([&] { return metrics_so_far(run) >= steps; })) << process.output();
  }

  // Ends a run of two ranks with a SIGKILL to one process; returns what it wrote.
  std::string killed(const std::function<pid_t()>& victim) {
    Process process(train_on(2, "run", kEndless), dir / "log", marked());
    wait_for_steps(process, "run", 3);
    EXPECT_EQ(kill(victim(), SIGKILL), 0);
    EXPECT_NE(process.wait(), 0);
    EXPECT_FALSE(run_is_locked(dir / "run")) << "the user may start again at once";
    expect_nothing_left("run");
    return process.output();
  }
};

TEST_F(Ranks, TrainAsOneDoes) {
  std::vector<std::string> sets = kNoSaves;
  sets.insert(sets.end(), {"train.steps=8", "model.dropout=0", "model.attention_dropout=0"});
  ASSERT_EQ(run_weft(train(config, "one", sets), dir / "log").status, 0) << env.read(dir / "log");
  // On one core, so that it is said.
  const auto result = run_weft(train_on(2, "two", sets), dir / "log", marked([] {
                                 cpu_set_t first;
                                 CPU_ZERO(&first);
                                 CPU_SET(sched_getcpu(), &first);
                                 sched_setaffinity(0, sizeof first, &first);
                               }));
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(occurrences(result.output, "2 ranks share 1 core"), 1) << result.output;
  EXPECT_EQ(occurrences(result.output, "2 ranks, each 1 threads"), 1) << result.output;
  EXPECT_TRUE(env.exists(dir / "two/logs/rank-0001.log"));
  expect_nothing_left("two");
  const auto one = metrics(dir / "one"), two = metrics(dir / "two");
  ASSERT_EQ(two.size(), 8u);
  for (size_t i = 0; i < two.size(); ++i)
    for (const char* const key : {"loss", "grad_norm"})
      EXPECT_NEAR(two[i].at(key).get<double>() / one[i].at(key).get<double>(), 1, 1e-5) << i << key;
}

TEST_F(Ranks, AKilledRankEndsTheJob) {
  EXPECT_THAT(killed([&] { return process_of_rank(1); }),
              AllOf(HasSubstr("weft: error: rank 1 was killed by signal 9 (SIGKILL)"),
                    HasSubstr("logs/rank-0001.log"), Not(HasSubstr("mpirun"))));
}

TEST_F(Ranks, AKilledFirstRankEndsTheJob) {
  EXPECT_THAT(killed([&] { return process_of_rank(0); }),
              HasSubstr("weft: error: rank 0 was killed by signal 9 (SIGKILL)"));
}

TEST_F(Ranks, AKilledMpirunEndsTheJob) {
  EXPECT_THAT(
      killed([&] { return process_named("mpirun"); }),
      HasSubstr("weft: error: mpirun, which holds the ranks together, was killed by signal 9 (SIGKILL)"));
}

TEST_F(Ranks, AKilledSupervisorEndsTheJob) {
  Process process(train_on(2, "run", kEndless), dir / "log", marked());
  wait_for_steps(process, "run", 3);
  process.signal(SIGKILL);
  EXPECT_EQ(process.wait(), 128 + SIGKILL);
  expect_nothing_left("run");
}

// As systemd and batch systems do: every process of the job gets the signal at once. A rank that is busy for
// longer than the second that mpirun would give it still saves.
TEST_F(Ranks, ASignalToAllProcessesSaves) {
  Process process(train_on(2, "run", {"checkpoint.save_every=0"}), dir / "log", marked());
  wait_for_steps(process, "run", 3);
  const pid_t slow = process_of_rank(1);
  for (const auto& [pid, text] : processes()) kill(pid, SIGTERM);
  kill(slow, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  kill(slow, SIGCONT);
  EXPECT_EQ(process.wait(), 0) << process.output();
  EXPECT_THAT(process.output(), HasSubstr("the same command continues"));
  expect_nothing_left("run");
}

TEST_F(Ranks, ThatDoNotStartEndByTheFirstCtrlC) {
  // A mpirun that starts nothing.
  std::ofstream(dir / "mpirun") << "#!/bin/sh\nexec sleep 1000\n";
  std::filesystem::permissions(dir / "mpirun", std::filesystem::perms::owner_all);
  Process process(train_on(2, "run", kNoSaves), dir / "log",
                  marked([this] { setenv("PATH", (dir.path() + ":/usr/bin:/bin").c_str(), 1); }));
  ASSERT_TRUE(process.wait_until([&] { return env.exists(dir / "run/logs/mpirun.log"); }));
  ASSERT_TRUE(process.wait_until([&] { return process_named("sleep") > 0; }));
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(), 128 + SIGINT);
  expect_nothing_left("run");
}

TEST_F(Ranks, CtrlCTwiceEndsAtOnce) {
  Process process(train_on(2, "run", kEndless), dir / "log", marked());
  wait_for_steps(process, "run", 1);
  const pid_t first = process_of_rank(0);
  kill(first, SIGSTOP);  // it cannot stop in good order
  process.signal(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  process.signal(SIGINT);
  EXPECT_EQ(process.wait(), 128 + SIGINT);
  expect_nothing_left("run");
}

TEST_F(Ranks, CtrlCSavesHoweverLongItTakes) {
  Process process(train_on(2, "run", {"checkpoint.save_every=0"}), dir / "log", marked());
  wait_for_steps(process, "run", 3);
  const pid_t slow = process_of_rank(1);
  kill(slow, SIGSTOP);
  process.signal(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // mpirun alone would give it one second
  kill(slow, SIGCONT);
  EXPECT_EQ(process.wait(), 0) << process.output();
  EXPECT_THAT(process.output(), HasSubstr("the same command continues"));
  EXPECT_EQ(env.list(dir / "run/checkpoints").size(), 1u);
  expect_nothing_left("run");
}

TEST_F(Ranks, AKillInASaveLosesNothing) {
  const std::vector<std::string> sets = {"train.steps=20"};
  ASSERT_EQ(run_weft(train_on(2, "whole", sets), dir / "log").status, 0) << env.read(dir / "log");
  const auto saving = [&] {
    for (const auto& name : env.list(dir / "run/checkpoints"))
      if (name.rfind(".tmp-", 0) == 0) return metrics_so_far("run") > 4;
    return false;
  };
  {
    Process process(train_on(2, "run", sets), dir / "log", marked());
    ASSERT_TRUE(process.wait_until(saving)) << process.output();
    kill(process_of_rank(1), SIGKILL);
    EXPECT_NE(process.wait(), 0);
  }
  const auto result = run_weft(train_on(2, "run", sets), dir / "log", marked());
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("resuming after step"));
  EXPECT_EQ(curve(dir / "run"), curve(dir / "whole"));
  expect_nothing_left("run");
}

TEST_F(Ranks, AnErrorIsShownOnce) {
  const auto failing = [&](const std::vector<std::string>& sets) {
    const auto result = run_weft(train_on(2, "run", sets), dir / "log", marked());
    EXPECT_EQ(result.status, 1) << result.output;
    EXPECT_EQ(occurrences(result.output, "error"), 1) << result.output;
    expect_nothing_left("run");
    return result.output;
  };
  EXPECT_THAT(failing({"model.n_layer=3"}), HasSubstr("n_layers"));
  EXPECT_THAT(failing({"parallel.dp_replicate=3"}), HasSubstr("1, 2 would"));
  EXPECT_THAT(failing({"model.vocab_size=30"}), AllOf(HasSubstr("30"), Not(HasSubstr("rank 0"))));
}

TEST_F(Ranks, WithoutMpirunTheRemedyIsNamed) {
  const auto result =
      run_weft(train_on(2, "run", kNoSaves), dir / "log", marked([] { setenv("PATH", "/nowhere", 1); }));
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("apt-get install openmpi-bin"));
}

TEST_F(Ranks, OfDifferentConfigsAreNamed) {
  std::vector<std::string> arguments = {"-np", "2", WEFT_BINARY};
  for (const int64_t seed : {1, 7}) {
    const auto command = train(config, "run",
                               {fmt::format("train.seed={}", seed), "optim.warmup_steps=0",
                                fmt::format("comm.check={}", seed == 1)});
    if (seed == 7) arguments.insert(arguments.end(), {":", "-np", "1", WEFT_BINARY});
    arguments.insert(arguments.end(), command.begin(), command.end());
  }
  const auto result = run_weft({}, dir / "log", marked(mpirun(arguments)));
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("rank 2 has another config than rank 0"),
                                   HasSubstr("train.seed is 7 there, and 1 on the first"),
                                   HasSubstr("comm.check is false there, and true on the first"),
                                   Not(HasSubstr("train.steps is"))));
  expect_nothing_left("run");
}

TEST_F(Ranks, AreNotStartedByRanks) {
  std::vector<std::string> arguments = {"-np", "1", WEFT_BINARY};
  const auto command = train_on(2, "run", kNoSaves);
  arguments.insert(arguments.end(), command.begin(), command.end());
  const auto result = run_weft({}, dir / "log", marked(mpirun(arguments)));
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr("OMPI_COMM_WORLD_SIZE = 1"));
}

TEST_F(Ranks, WithoutAJobAreNamed) {
  const auto with = [&](const std::vector<std::pair<const char*, const char*>>& variables) {
    const auto result = run_weft(train(config, "run", kNoSaves), dir / "log", marked([&] {
                                   for (const auto& [name, value] : variables) setenv(name, value, 1);
                                 }));
    EXPECT_EQ(result.status, 1) << result.output;
    return result.output;
  };
  EXPECT_THAT(with({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}}),
              AllOf(HasSubstr("OMPI_COMM_WORLD_SIZE = 2"), HasSubstr("MPI found a job of 1")));
  EXPECT_THAT(with({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("torchrun"));
}

TEST_F(Ranks, TheFirstHasTheTerminal) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const std::string name = ptsname(terminal);
  std::string screen;
  std::thread reader([&] {
    char buffer[4096];
    for (ssize_t n = 0; (n = read(terminal, buffer, sizeof buffer)) > 0;) screen.append(buffer, size_t(n));
  });
  std::vector<std::string> sets = kNoSaves;
  sets.push_back("train.steps=5");
  const auto result = run_weft(train_on(2, "run", sets), dir / "log", marked([&] {
                                 const int screen_end = open(name.c_str(), O_RDWR | O_NOCTTY);
                                 dup2(screen_end, 1), dup2(screen_end, 2), close(screen_end);
                               }));
  EXPECT_EQ(result.status, 0);
  reader.join();
  close(terminal);
  EXPECT_THAT(screen, HasSubstr("\rstep 5/5  loss"));
}

TEST_F(Ranks, HaveAMeshToLookAt) {
  const auto result =
      run_weft({"mesh", config, "--ranks", "6", "--set", "parallel.dp_replicate=2"}, dir / "log");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr("6 ranks: dp_replicate 2 x dp_shard 3"));
  EXPECT_EQ(run_weft({"mesh", config, "--ranks", "0"}, dir / "log").status, 2);
}

}  // namespace
}  // namespace weft
