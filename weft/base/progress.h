// Lines on stderr that tell how far something is. On a terminal a line is rewritten in place; in a pipe or a
// file plain lines appear, seldom. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace weft {

/// "83", "12.3k", "4.56M": three digits are enough for the eye.
std::string short_count(double count);

/// "1.2 s", "3 min 05 s", "2 h 07 min", "4 d 03 h".
std::string short_duration(double seconds);

struct TerminalSize {
  int columns = 80, rows = 24;
};
TerminalSize terminal_size(std::FILE* terminal);

/// Characters of UTF-8 in `text`, and its first `count` of them.
size_t characters(const std::string& text);
std::string clipped(const std::string& text, size_t count);

/// `text` on one line, at most `length` characters of UTF-8: each run of white space and control characters
/// is one space, and what is too long ends in "…".
std::string one_line(const std::string& text, size_t length);

/// One line of status. On a terminal it is rewritten in place, at most ten times a second; elsewhere each
/// update is a line of its own.
class StatusLine {
 public:
  explicit StatusLine(std::FILE* out = stderr);
  ~StatusLine() { finish(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void update(const std::string& text);
  void finish();  // shows the last text in full and moves to the next line; other output may follow
  bool on_terminal() const { return on_terminal_; }

 private:
  void draw();

  std::FILE* out_;
  bool on_terminal_;
  std::string text_;    // of the last update
  bool drawn_ = false;  // text_ is on the screen
  bool open_ = false;   // the cursor stands in our line
  std::chrono::steady_clock::time_point last_draw_;
};

/// Progress of a task with a known total: "tokenizing  45%  1.2M / 2.7M bytes  3.1M/s  ETA 2.0 s".
/// Silent for the first second, so a task shorter than that prints nothing. Off a terminal: a line at most
/// every ten seconds, and the last.
class Progress {
 public:
  Progress(std::string label, int64_t total, std::string unit, std::FILE* out = stderr);
  ~Progress() { finish(); }

  void add(int64_t count) { set(done_ + count); }
  void set(int64_t done);
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  std::string text(double seconds) const;

  std::string label_, unit_;
  int64_t total_, done_ = 0;
  StatusLine line_;
  Clock::time_point start_, next_;
  bool shown_ = false;
};

}  // namespace weft
