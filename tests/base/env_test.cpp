#include "weft/base/env.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/error_of.h"
#include "tests/base/fault_env.h"
#include "tests/base/temporary_dir.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void write(Env& env, const std::string& path, std::string_view text, bool sync = false) {
  const auto file = env.create(path);
  file->append(text);
  if (sync) file->sync();
  file->close();
}

class SystemEnv : public testing::Test {
 protected:
  Env& env = Env::system();
  TemporaryDir dir;
};

TEST_F(SystemEnv, CreateTruncatesAndOpenAppendContinues) {
  write(env, dir / "f", "a long first version");
  write(env, dir / "f", "short");
  EXPECT_EQ(env.read(dir / "f"), "short");
  env.open_append(dir / "f")->append("er");
  EXPECT_EQ(env.read(dir / "f"), "shorter");
}

TEST_F(SystemEnv, MapShowsTheWholeFile) {
  std::string text(100'003, 'x');
  text.back() = 'y';
  write(env, dir / "f", text);
  const auto file = env.map(dir / "f");
  ASSERT_EQ(file->bytes().size(), text.size());
  EXPECT_EQ(char(file->bytes().back()), 'y');
  EXPECT_EQ(env.read(dir / "f"), text);
}

TEST_F(SystemEnv, EmptyFilesMapAndRead) {
  write(env, dir / "empty", "");
  EXPECT_TRUE(env.map(dir / "empty")->bytes().empty());
  EXPECT_EQ(env.read(dir / "empty"), "");
}

TEST_F(SystemEnv, ReadDoesNotTrustTheSizeThatTheSystemTells) {
  EXPECT_GT(env.read("/proc/self/status").size(), 100u);
}

TEST_F(SystemEnv, ListIsSortedAndAMissingDirectoryIsEmpty) {
  for (const char* name : {"c", "a", "b"}) write(env, dir / name, "");
  EXPECT_THAT(env.list(dir.path()), ElementsAre("a", "b", "c"));
  EXPECT_TRUE(env.list(dir / "missing").empty());
  EXPECT_THAT(error_of([&] { env.list(dir / "a"); }), HasSubstr("Not a directory"));
}

TEST_F(SystemEnv, DirectoriesAreMadeRenamedAndRemoved) {
  env.create_dirs(dir / "x/y/z");
  env.create_dirs(dir / "x/y/z");
  write(env, dir / "x/y/z/f", "1", true);
  env.rename(dir / "x/y", dir / "moved");
  env.sync_dir(dir.path());
  EXPECT_EQ(env.read(dir / "moved/z/f"), "1");
  EXPECT_FALSE(env.exists(dir / "x/y"));
  EXPECT_FALSE(env.exists(dir / "moved/z/f/below-a-file"));
  env.remove_all(dir / "moved");
  env.remove_all(dir / "moved");
  EXPECT_FALSE(env.exists(dir / "moved"));
}

TEST_F(SystemEnv, ErrorsNameThePathAndTheReason) {
  write(env, dir / "f", "");
  const std::string missing = dir / "missing", below = dir / "f/below";
  EXPECT_EQ(error_of([&] { env.read(missing); }), "cannot read " + missing + ": No such file or directory");
  EXPECT_EQ(error_of([&] { env.map(missing); }), "cannot read " + missing + ": No such file or directory");
  EXPECT_EQ(error_of([&] { env.map(dir.path()); }), "cannot read " + dir.path() + ": Is a directory");
  EXPECT_EQ(error_of([&] { env.create(below); }), "cannot write " + below + ": Not a directory");
  EXPECT_EQ(error_of([&] { env.create_dirs(below); }),
            "cannot create the directory " + below + ": Not a directory");
  EXPECT_EQ(error_of([&] { env.rename(missing, dir / "g"); }),
            "cannot rename " + missing + " to " + (dir / "g") + ": No such file or directory");
  EXPECT_THAT(error_of([&] { env.sync_dir(missing); }), HasSubstr("No such file or directory"));
}

TEST_F(SystemEnv, AFullDiskIsAnErrorThatTellsTheSpace) {
  const std::string error = error_of([&] { env.open_append("/dev/full")->append("x"); });
  EXPECT_THAT(error,
              testing::MatchesRegex("cannot write /dev/full: No space left on device \\([0-9]+ kB free\\)"));
}

TEST_F(SystemEnv, TheLimitOnFileSizeIsAnErrorInsteadOfDeath) {
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto file = env.create(dir / "f");
  rlimit small = old;
  small.rlim_cur = 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = error_of([&] { file->append("more than ten bytes"); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_THAT(error, HasSubstr("f: File too large (the limit on file size, see `ulimit -f`)"));
  EXPECT_EQ(env.read(dir / "f"), "more than ");
}

TEST(WriteFileAtomically, ReplacesTheFileAndLeavesNothingElse) {
  const TemporaryDir dir;
  write_file_atomically(Env::system(), dir / "f", "old");
  write_file_atomically(Env::system(), dir / "f", "new");
  EXPECT_EQ(Env::system().read(dir / "f"), "new");
  EXPECT_THAT(Env::system().list(dir.path()), ElementsAre("f"));
}

TEST(WriteFileAtomically, APowerCutAnywhereLeavesTheOldOrTheNewFile) {
  bool old_seen = false, new_seen = false;
  for (uint64_t operations = 0;; ++operations) {
    const TemporaryDir dir;
    FaultEnv env;
    write_file_atomically(env, dir / "f", "old contents");
    env.stop_after(operations);
    bool finished = true;
    try {
      write_file_atomically(env, dir / "f", "new");
    } catch (const PowerCut&) {
      finished = false;
    }
    env.drop_unsynced();
    const std::string found = env.read(dir / "f");
    EXPECT_TRUE(found == "old contents" || found == "new") << operations << ": " << found;
    (found == "new" ? new_seen : old_seen) = true;
    if (finished) {
      EXPECT_EQ(found, "new");
      break;
    }
  }
  EXPECT_TRUE(old_seen && new_seen);
}

TEST(WriteFileAtomically, AFullDiskLeavesTheOldFile) {
  const TemporaryDir dir;
  FaultEnv env;
  write_file_atomically(env, dir / "f", "old");
  env.fill_disk_after(2);
  EXPECT_THAT(error_of([&] { write_file_atomically(env, dir / "f", "new"); }),
              HasSubstr("No space left on device"));
  EXPECT_EQ(env.read(dir / "f"), "old");
}

class Faults : public testing::Test {
 protected:
  FaultEnv env;
  TemporaryDir dir;
};

TEST_F(Faults, UnsyncedBytesAreLost) {
  const auto file = env.create(dir / "f");
  env.sync_dir(dir.path());
  file->append("kept");
  file->sync();
  file->append(" lost");
  file->close();
  env.drop_unsynced();
  EXPECT_EQ(env.read(dir / "f"), "kept");
}

TEST_F(Faults, BytesThatWereThereBeforeSurviveAnUnsyncedAppend) {
  write(Env::system(), dir / "f", "before");
  env.open_append(dir / "f")->append(" after");
  EXPECT_EQ(env.read(dir / "f"), "before after");
  env.drop_unsynced();
  EXPECT_EQ(env.read(dir / "f"), "before");
}

TEST_F(Faults, ACreationCountsOnceItsDirectoryIsSynced) {
  env.create_dirs(dir / "new/below");
  write(env, dir / "new/below/f", "1", true);
  env.sync_dir(dir.path());
  env.sync_dir(dir / "new");
  env.drop_unsynced();
  EXPECT_THAT(env.list(dir / "new"), ElementsAre("below"));
  EXPECT_TRUE(env.list(dir / "new/below").empty());
}

TEST_F(Faults, ARenameIsUndoneWithWhatItReplaced) {
  write(Env::system(), dir / "a", "old");
  write(Env::system(), dir / "b", "new");
  env.rename(dir / "b", dir / "a");
  env.drop_unsynced();
  EXPECT_EQ(env.read(dir / "a"), "old");
  EXPECT_EQ(env.read(dir / "b"), "new");
}

TEST_F(Faults, ADirectoryRenamedDurablyKeepsOnlyItsSyncedContents) {
  env.create_dirs(dir / "d.tmp");
  write(env, dir / "d.tmp/durable", "1", true);
  env.sync_dir(dir / "d.tmp");
  write(env, dir / "d.tmp/unsynced", "12");
  write(env, dir / "d.tmp/nameless", "123", true);
  env.rename(dir / "d.tmp", dir / "d");
  env.sync_dir(dir.path());
  env.drop_unsynced();
  EXPECT_THAT(env.list(dir.path()), ElementsAre("d"));
  EXPECT_THAT(env.list(dir / "d"), ElementsAre("durable"));
}

TEST_F(Faults, ADirectorySyncedUnderItsNewNameKeepsItsFiles) {
  write(Env::system(), dir / "marker", "");
  env.create_dirs(dir / "d.tmp");
  env.sync_dir(dir.path());
  write(env, dir / "d.tmp/f", "1", true);
  env.rename(dir / "d.tmp", dir / "d");
  env.sync_dir(dir / "d");
  env.drop_unsynced();  // the rename is undone, the file inside is not
  EXPECT_EQ(env.read(dir / "d.tmp/f"), "1");
}

TEST_F(Faults, FlipBitChangesOneBit) {
  write(env, dir / "f", "abc");
  FaultEnv::flip_bit(dir / "f", 1, 5);
  EXPECT_EQ(env.read(dir / "f"), "aBc");
}

}  // namespace
}  // namespace weft
