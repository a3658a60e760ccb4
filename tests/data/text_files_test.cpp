#include "weft/data/text_files.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/env.h"
#include "weft/base/error.h"

#include "tests/base/temporary_dir.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class TextFilesTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, std::string_view text) {
    const std::string path = dir_ / name;
    Env::system().create_dirs(std::filesystem::path(path).parent_path().string());
    const auto file = Env::system().create(path);
    file->append(text);
    file->close();
    return path;
  }

  std::vector<std::string> found(const std::vector<std::string>& paths) {
    std::vector<std::string> names;
    for (const TextFile& file : find_text_files(paths)) {
      names.push_back(std::filesystem::relative(file.path, dir_.path()).string());
    }
    return names;
  }

  TemporaryDir dir_;
};

TEST_F(TextFilesTest, DirectoriesAreSearchedInSortedOrder) {
  write("in/b.txt", "b");
  write("in/a/z.txt", "z");
  write("in/c.md", "not asked for");
  const std::string single = write("other.md", "named, so taken");
  EXPECT_THAT(found({single, dir_ / "in"}), ::testing::ElementsAre("other.md", "in/a/z.txt", "in/b.txt"));
  EXPECT_EQ(find_text_files({single})[0].bytes, 15);
}

TEST_F(TextFilesTest, TextInAnOddEncodingPasses) {
  EXPECT_EQ(found({write("latin1.txt", "un caf\xE9 noir, s'il vous pla\xEEt")}).size(), 1u);
  EXPECT_EQ(found({write("emoji.txt", "\r\n\xF0\x9F\x91\x8D")}).size(), 1u);
  // The probe's end cuts a character.
  std::string text(65535, 'a');
  EXPECT_EQ(found({write("cut.txt", text + "日本")}).size(), 1u);
}

TEST_F(TextFilesTest, WhatIsNoTextIsRefused) {
  EXPECT_THAT([&] { find_text_files({dir_ / "missing"}); },
              ThrowsMessage<Error>(AllOf(HasSubstr("missing"), HasSubstr("no such file"))));
  Env::system().create_dirs(dir_ / "hollow");
  EXPECT_THAT([&] { find_text_files({dir_ / "hollow"}); }, ThrowsMessage<Error>(HasSubstr("no *.txt files")));
  const std::string nul = write("nul.txt", std::string("abc\0def", 7));
  EXPECT_THAT([&] { find_text_files({nul}); },
              ThrowsMessage<Error>(AllOf(HasSubstr("nul.txt"), HasSubstr("byte 3 is NUL"))));
  const std::string binary = write("binary.txt", "a\x80\x81\x82\x83\x84\x85");
  EXPECT_THAT([&] { find_text_files({binary}); },
              ThrowsMessage<Error>(AllOf(HasSubstr("not UTF-8"), HasSubstr("byte 1 first"))));
  const std::string empty = write("empty.txt", "");
  EXPECT_THAT(
      [&] {
        find_text_files({empty, empty});
      },
      ThrowsMessage<Error>(HasSubstr("2 files, all empty")));
  EXPECT_EQ(found({empty, write("full.txt", "x")}).size(), 2u);
}

TEST_F(TextFilesTest, UnwritablePlacesAreFoundOut) {
  check_writable(dir_ / "new/dir/file");
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "new/dir"));
  EXPECT_THAT([&] { check_writable(dir_ / "new"); }, ThrowsMessage<Error>(HasSubstr("is a directory")));
  const std::string file = write("file", "x");
  EXPECT_THROW(check_writable(file + "/below"), Error);
  EXPECT_THROW(check_writable("/proc/weft"), Error);
}

}  // namespace
}  // namespace weft
