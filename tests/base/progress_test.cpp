#include "weft/base/progress.h"

#include <algorithm>
#include <stdexcept>
#include <thread>

#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace weft {
namespace {

using namespace std::chrono_literals;

/// All that `write` prints to a file.
template <class Write>
std::string printed(Write write) {
  std::FILE* file = std::tmpfile();
  write(file);
  std::string text(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  return text;
}

/// All that `write` prints to a terminal of 20 columns.
template <class Write>
std::string printed_on_terminal(Write write) {
  int master = 0, slave = 0;
  winsize size{.ws_row = 5, .ws_col = 20, .ws_xpixel = 0, .ws_ypixel = 0};
  if (openpty(&master, &slave, nullptr, nullptr, &size) != 0)
    throw std::runtime_error("no pseudo-terminal to be had: is /dev/pts mounted?");
  std::FILE* file = fdopen(slave, "w");
  write(file);
  std::fflush(file);
  std::string text;
  for (pollfd waiting{master, POLLIN, 0}; poll(&waiting, 1, 100) == 1;) {
    char buffer[256];
    text.append(buffer, static_cast<size_t>(std::max<ssize_t>(0, read(master, buffer, sizeof buffer))));
  }
  std::fclose(file);
  close(master);
  return text;
}

TEST(ShortText, CountsAndDurations) {
  EXPECT_EQ(short_count(0), "0");
  EXPECT_EQ(short_count(83), "83");
  EXPECT_EQ(short_count(1.5), "1.50");
  EXPECT_EQ(short_count(999), "999");
  EXPECT_EQ(short_count(999.6), "1.00k");
  EXPECT_EQ(short_count(12345), "12.3k");
  EXPECT_EQ(short_count(4567890), "4.57M");
  EXPECT_EQ(short_count(123e9), "123G");
  EXPECT_EQ(short_duration(1.23), "1.2 s");
  EXPECT_EQ(short_duration(59.96), "1 min 00 s");
  EXPECT_EQ(short_duration(185), "3 min 05 s");
  EXPECT_EQ(short_duration(7645), "2 h 07 min");
  EXPECT_EQ(short_duration(356400), "4 d 03 h");
  EXPECT_EQ(short_duration(1.0 / 0.0), "?");
}

TEST(StatusLineTest, PrintsWholeLinesToAFile) {
  EXPECT_EQ(printed([](std::FILE* out) {
              StatusLine line(out);
              line.update("one");
              line.update("two");
              line.finish();
            }),
            "one\ntwo\n");
}

TEST(StatusLineTest, RewritesInPlaceOnATerminal) {
  EXPECT_EQ(printed_on_terminal([](std::FILE* out) {
              StatusLine line(out);
              line.update("a text that is wider than the terminal");
              line.update("dropped: too soon after the first");
              line.update("the last");
              line.finish();
              line.finish();
            }),
            "\ra text that is wide\x1b[K\rthe last\x1b[K\r\n");
  EXPECT_EQ(printed_on_terminal([](std::FILE* out) { StatusLine line(out); }), "");
}

TEST(ProgressTest, IsSilentUnderASecond) {
  EXPECT_EQ(printed([](std::FILE* out) {
              Progress progress("reading", 100, "files", out);
              for (int i = 0; i < 100; ++i) progress.add(1);
            }),
            "");
}

TEST(ProgressTest, PrintsFewPlainLinesToAFile) {
  const std::string text = printed([](std::FILE* out) {
    Progress progress("reading", 100, "files", out);
    std::this_thread::sleep_for(1010ms);
    for (int i = 0; i < 100; ++i) progress.add(1);  // the first of them prints, the others come too soon
    progress.finish();
  });
  EXPECT_EQ(text.substr(0, text.find("/s")).substr(0, 31), "reading    1%  1 / 100 files  0");
  EXPECT_NE(text.find("reading  100%  100 / 100 files  "), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(OneLine, JoinsAndCutsCharacters) {
  EXPECT_EQ(one_line(" a\n\n\tb\x1b[31m ö", 20), "a b [31m ö");
  EXPECT_EQ(one_line("föör", 4), "föör");
  EXPECT_EQ(one_line("föörs", 4), "föö…");
}

}  // namespace
}  // namespace weft
