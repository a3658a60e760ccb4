// Flight recorders' files: written, read and compared.
#include "weft/comm/recordings.h"

#include <cstddef>

#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/comm/flight_recorder.h"

#include "tests/base/error_of.h"
#include "tests/base/memory_env.h"
#include "tests/base/temporary_dir.h"

namespace weft {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

OpRecord collective(const std::string& kind, uint64_t sequence, int64_t numel, uint32_t group = 0) {
  OpRecord record;
  set_field(record.kind, kind);
  set_field(record.dtype, "fp32");
  set_field(record.reduction, "sum");
  record.sequence = sequence;
  record.numel = numel;
  record.group = group;
  return record;
}

OpRecord message(const std::string& kind, int peer, int tag) {
  OpRecord record = collective(kind, 0, 24);
  record.peer = peer, record.tag = tag;
  return record;
}

class Recordings : public testing::Test {
 protected:
  /// A recorder of one rank of three, in whose group "dp" all three are.
  std::unique_ptr<FlightRecorder> recorder(int64_t rank, uint64_t run = 7) {
    auto made = std::make_unique<FlightRecorder>(dir_, rank, 3, run);
    EXPECT_EQ(made->add_group("dp", {0, 1, 2}), 0u);
    return made;
  }
  std::string compare() { return compare_recordings(read_recordings(Env::system(), dir_)); }
  std::string bytes(int64_t rank) { return Env::system().read(ring_path(dir_, rank)); }

  TemporaryDir temporary_;
  const std::string dir_ = temporary_.path() + "/comm";
};

TEST_F(Recordings, WhatIsWrittenIsRead) {
  const auto recorder = this->recorder(1);
  EXPECT_EQ(recorder->add_group("dp_replicate x dp_shard", {1, 2}), 1u);
  EXPECT_EQ(recorder->add_group("dp", {0, 1, 2}), 0u) << "the same group has one place";
  EXPECT_EQ(recorder->last_sequence(0), 0u);
  const uint64_t first = recorder->issued(collective("all_gather", 1, 24));
  const uint64_t second = recorder->issued(collective("reduce_scatter", 1, 5, 1));
  recorder->done(second);
  EXPECT_EQ(recorder->last_sequence(0), 1u);

  const Recording read = parse_recording(bytes(1), "file");
  EXPECT_EQ(read.rank(), 1);
  EXPECT_EQ(read.header.ranks, 3u);
  EXPECT_EQ(read.header.run, 7u);
  EXPECT_EQ(read.header.pid, uint32_t(getpid()));
  ASSERT_EQ(read.groups.size(), 2u);
  EXPECT_EQ(read.groups[1].name, "dp_replicate x dp_shard");
  EXPECT_THAT(read.groups[1].ranks, ElementsAre(1, 2));
  EXPECT_EQ(read.groups[0].issued, 1u);
  ASSERT_EQ(read.records.size(), 2u);
  EXPECT_EQ(read.records[0].number, first);
  EXPECT_EQ(read.records[0].done, 0);
  EXPECT_GE(read.records[1].done, read.records[1].issued);
  EXPECT_EQ(describe(read.records[1], {1, 2}), "reduce_scatter(sum) of 5 fp32");
}

TEST_F(Recordings, TheRingKeepsTheLast) {
  const auto recorder = this->recorder(0);
  for (uint64_t i = 1; i <= 10'000; ++i) recorder->done(recorder->issued(collective("all_gather", i, 24)));
  recorder->done(1);  // whose place another has: nothing happens
  const Recording read = parse_recording(bytes(0), "file");
  ASSERT_EQ(read.records.size(), read.header.max_records);
  EXPECT_EQ(read.records.back().number, 10'000u);
  EXPECT_EQ(read.records.front().number, 10'000u - read.header.max_records + 1);
  EXPECT_EQ(read.groups[0].issued, 10'000u);
}

TEST_F(Recordings, AFullTableOfGroupsRecordsNoMore) {
  const auto recorder = this->recorder(0);
  uint32_t place = 0;
  for (int i = 0; place != FlightRecorder::kUnlisted; ++i) {
    ASSERT_LT(i, 10'000);
    place = recorder->add_group("group " + std::to_string(i), {0, 1, 2});
  }
  EXPECT_EQ(recorder->issued(collective("all_gather", 1, 24, place)), 0u);
  recorder->done(0);
  EXPECT_THAT(parse_recording(bytes(0), "file").records, testing::IsEmpty());
}

// Exactly these bytes, as docs/formats.md says.
TEST_F(Recordings, Bytes) {
  const auto recorder = this->recorder(2);
  recorder->issued(collective("all_gather", 9, 24));
  const std::string file = bytes(2);
  const auto u32 = [&](size_t at) {
    uint32_t value;
    std::memcpy(&value, file.data() + at, 4);
    return value;
  };
  const auto u64 = [&](size_t at) {
    uint64_t value;
    std::memcpy(&value, file.data() + at, 8);
    return value;
  };
  EXPECT_EQ(file.substr(0, 8), "WEFTRING");
  EXPECT_EQ(u32(8), 1u);   // version
  EXPECT_EQ(u32(12), 2u);  // rank
  EXPECT_EQ(u32(16), 3u);  // ranks
  EXPECT_EQ(u32(20), 256u);
  EXPECT_EQ(u32(24), 4096u);
  EXPECT_EQ(u32(28), 4096u);
  EXPECT_EQ(u64(32), 7u);  // run
  EXPECT_EQ(u32(56), uint32_t(getpid()));
  EXPECT_EQ(u32(60), 1u);  // groups
  EXPECT_EQ(u32(64), 3u);  // members
  EXPECT_EQ(u64(72), 1u);  // records written
  EXPECT_EQ(file.size(), 144u + 256 * 64 + 4096 * 4 + 4096 * 96);
  EXPECT_EQ(file.substr(144, 3), std::string("dp\0", 3));
  EXPECT_EQ(u32(144 + 52), 3u);
  EXPECT_EQ(u64(144 + 56), 9u);
  const size_t members = 144 + 256 * 64, record = members + 4096 * 4;
  EXPECT_EQ(u32(members + 8), 2u);
  EXPECT_EQ(u64(record), 1u);
  EXPECT_EQ(u64(record + 8), 9u);
  EXPECT_EQ(u64(record + 32), 24u);
  EXPECT_EQ(file.substr(record + 56, 11), std::string("all_gather\0", 11));
  EXPECT_EQ(file.substr(record + 72, 5), std::string("fp32\0", 5));
  EXPECT_EQ(u64(record + 88), 1u);
}

TEST_F(Recordings, OutlastTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    const auto recorder = this->recorder(0);
    recorder->issued(collective("all_gather", 1, 24));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const Recording read = parse_recording(bytes(0), "file");
  ASSERT_EQ(read.records.size(), 1u);
  EXPECT_EQ(read.header.pid, uint32_t(child));
}

TEST_F(Recordings, ARankIsStartedOnce) {
  const auto first = recorder(1);
  EXPECT_THAT(error_of([&] { FlightRecorder(dir_, 1, 3, 8); }),
              AllOf(HasSubstr("rank 1 of this run was started twice"), HasSubstr("comm/rank-00001.ring")));
  EXPECT_EQ(parse_recording(bytes(1), "file").header.run, 7u) << "the first one's is as it was";
}

TEST_F(Recordings, NoPlaceToWrite) {
  Env::system().create(temporary_.path() + "/file")->append("text");
  EXPECT_THAT(error_of([&] { FlightRecorder(temporary_.path() + "/file/comm", 0, 3, 7); }),
              HasSubstr("cannot create " + temporary_.path() + "/file/comm"));
}

// ---------------------------------------------------------------- comparing

TEST_F(Recordings, ARankThatIsBehind) {
  std::vector<std::unique_ptr<FlightRecorder>> all;
  for (int64_t rank = 0; rank < 3; ++rank) {
    all.push_back(recorder(rank));
    all.back()->done(all.back()->issued(collective("reduce_scatter", 16, 12)));
    if (rank != 1) all.back()->issued(collective("all_gather", 17, 24));
  }
  const std::string text = compare();
  EXPECT_THAT(text, HasSubstr("a job of 3 ranks, started "));
  EXPECT_THAT(text, HasSubstr("\ndp: ranks 0 to 2\n"));
  EXPECT_THAT(text, HasSubstr("  ranks 0 and 2    #17 all_gather of 24 fp32, under way for 0.0 s\n"));
  EXPECT_THAT(text, HasSubstr("  rank 1           #16 reduce_scatter(sum) of 12 fp32, done 0.0 s ago\n"));
  EXPECT_THAT(text, HasSubstr("  -> rank 1 has not issued #17 all_gather of 24 fp32, for which ranks 0 and 2 "
                              "wait; its last was #16 reduce_scatter(sum) of 12 fp32, done 0.0 s ago\n"));
  const auto recordings = read_recordings(Env::system(), temporary_.path());  // the run's directory will do
  EXPECT_THAT(compare_recordings(recordings, "dp", {0, 1, 2}), testing::StartsWith("dp: ranks 0 to 2\n"));
  EXPECT_EQ(compare_recordings(recordings, "dp", {0, 1}), "");
}

TEST_F(Recordings, RanksThatDoNotDoTheSame) {
  std::vector<std::unique_ptr<FlightRecorder>> all;
  for (int64_t rank = 0; rank < 3; ++rank) {
    all.push_back(recorder(rank));
    all.back()->done(all.back()->issued(collective("all_gather", 1, 24)));
    all.back()->issued(collective(rank == 0 ? "all_reduce" : "all_gather", 2, 24));
    all.back()->issued(collective("all_gather", 3, rank == 0 ? 3 : 24));  // a consequence: not said
  }
  const std::string text = compare();
  EXPECT_THAT(text,
              HasSubstr("  -> as #2, ranks 1 and 2 issue all_gather of 24 fp32, but rank 0 all_reduce(sum) "
                        "of 24 fp32\n"));
  EXPECT_THAT(text, Not(HasSubstr("as #3")));
}

TEST_F(Recordings, AllWithinOneOperation) {
  std::vector<std::unique_ptr<FlightRecorder>> all;
  for (int64_t rank = 0; rank < 3; ++rank) {
    all.push_back(recorder(rank));
    const uint64_t number = all.back()->issued(collective("all_gather", 1, 24));
    if (rank == 2) all.back()->done(number);
  }
  EXPECT_THAT(compare(), HasSubstr("  -> all have issued #1; it is under way on ranks 0 and 1\n"));
}

TEST_F(Recordings, AllDone) {
  std::vector<std::unique_ptr<FlightRecorder>> all;
  for (int64_t rank = 0; rank < 3; ++rank) {
    all.push_back(recorder(rank));
    all.back()->done(all.back()->issued(collective("all_gather", 1, 24)));
  }
  EXPECT_THAT(compare(),
              AllOf(HasSubstr("  ranks 0 to 2     #1 all_gather of 24 fp32, done"), Not(HasSubstr("->"))));
}

TEST_F(Recordings, MessagesThatWait) {
  const auto first = recorder(0), second = recorder(1), third = recorder(2);
  second->issued(message("recv", 0, 3));
  third->issued(message("send", 1, 4));
  second->issued(message("recv", 2, 4));
  const std::string text = compare();
  EXPECT_THAT(text, HasSubstr("  -> rank 1 waits in recv of 24 fp32 from 0 (tag 3) for 0.0 s; rank 0 has no "
                              "such send under way\n"));
  EXPECT_THAT(text, HasSubstr("  -> rank 2 waits in send of 24 fp32 to 1 (tag 4) for 0.0 s\n"));
}

TEST_F(Recordings, RanksWithoutARecording) {
  const auto second = recorder(1);
  second->issued(collective("all_gather", 1, 24));
  const std::string text = compare();
  EXPECT_THAT(text, HasSubstr("no recording of ranks 0 and 2\n"));
  EXPECT_THAT(text, HasSubstr("  ranks 0 and 2    no recording\n"));
}

TEST_F(Recordings, OnlyTheLatestStartCounts) {
  recorder(0, 1), recorder(1, 1), recorder(2, 1);
  const auto again = recorder(1, 2);
  const auto recordings = read_recordings(Env::system(), dir_);
  ASSERT_EQ(recordings.size(), 1u);
  EXPECT_EQ(recordings[0].header.run, 2u);
}

// ---------------------------------------------------------------- bad files

TEST_F(Recordings, NoFiles) {
  MemoryEnv env;
  EXPECT_EQ(error_of([&] { read_recordings(env, "runs/demo"); }),
            "there are no recordings (rank-00000.ring, …) in runs/demo nor in runs/demo/comm: a run of "
            "several ranks "
            "writes them");
}

TEST_F(Recordings, BadFiles) {
  recorder(0)->issued(collective("all_gather", 1, 24));
  const std::string good = bytes(0);
  const auto error = [](const std::string& file) {
    return error_of([&] { parse_recording(file, "x.ring"); });
  };
  const auto with = [&](size_t at, const std::string& text) {
    return std::string(good).replace(at, text.size(), text);
  };
  const std::string ones(4, '\x7f');
  EXPECT_EQ(error(good), "no error");
  EXPECT_EQ(error(""),
            "x.ring is not a recording of a rank's communication: it does not begin with WEFTRING");
  EXPECT_EQ(error("WEFTRING"), "x.ring is cut off: 8 bytes, of which the header alone has 144");
  EXPECT_EQ(error(with(8, ones)), "x.ring is of version 2139062143, and this weft reads version 1");
  EXPECT_EQ(error(with(12, ones)), "x.ring is damaged: its header makes no sense");
  EXPECT_EQ(error(with(20, ones)), "x.ring is damaged: its header makes no sense");
  EXPECT_EQ(error(with(28, std::string(4, '\0'))), "x.ring is damaged: its header makes no sense");
  EXPECT_EQ(error(good.substr(0, good.size() - 1)),
            "x.ring is cut off: 426127 bytes where its header says 426128");
  EXPECT_EQ(error(good + "x"), "x.ring is damaged: 426129 bytes where its header says 426128");
  EXPECT_EQ(error(with(144 + 48, ones)), "x.ring is damaged: group 0 of its table makes no sense");
  EXPECT_EQ(error(with(144, "\n")), "x.ring is damaged: group 0 of its table makes no sense");
  const size_t record = 144 + 256 * 64 + 4096 * 4;
  EXPECT_EQ(error(with(record + 40, ones)), "x.ring is damaged: record 1 makes no sense");
  EXPECT_EQ(error(with(record + 56, "\x01")), "x.ring is damaged: record 1 makes no sense");
  EXPECT_TRUE(parse_recording(with(record + 88, ones), "").records.empty()) << "one that is being written";
}

}  // namespace
}  // namespace weft
