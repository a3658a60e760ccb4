#include "weft/base/progress.h"

#include <algorithm>
#include <cmath>

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace weft {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

}  // namespace

TerminalSize terminal_size(std::FILE* terminal) {
  winsize size{};
  if (ioctl(fileno(terminal), TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

size_t characters(const std::string& text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string clipped(const std::string& text, size_t count) {
  size_t seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xC0) != 0x80 && ++seen > count) return text.substr(0, i);
  }
  return text;
}

std::string short_count(double count) {
  const char* const suffixes[] = {"", "k", "M", "G", "T", "P"};
  size_t power = 0;
  // 999.5 and more would print as 1000.
  while (std::abs(count) >= 999.5 && power + 1 < std::size(suffixes)) {
    count /= 1000;
    ++power;
  }
  const double size = std::abs(count);
  const bool whole = power == 0 && count == std::floor(count);
  const int decimals = whole || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", count, decimals, suffixes[power]);
}

std::string short_duration(double duration) {
  if (!(duration < 1e9)) return "?";
  if (duration < 59.95) return fmt::format("{:.1f} s", duration);
  const auto whole = static_cast<int64_t>(std::llround(duration));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {:02} h", whole / 86400, whole / 3600 % 24);
}

std::string one_line(const std::string& text, size_t length) {
  std::string line;
  for (const char c : text) {
    const bool blank = static_cast<unsigned char>(c) <= ' ' || c == 0x7f;  // control characters too
    if (!blank) line += c;
    if (blank && !line.empty() && line.back() != ' ') line += ' ';
  }
  return characters(line) <= length ? line : clipped(line, length - 1) + "…";
}

StatusLine::StatusLine(std::FILE* out) : out_(out), on_terminal_(isatty(fileno(out)) == 1) {}

void StatusLine::update(const std::string& text) {
  text_ = text;
  drawn_ = false;
  if (!on_terminal_) {
    std::fputs((text + "\n").c_str(), out_);  // not fmt::print, which throws when nobody reads any more
    std::fflush(out_);
  } else if (!open_ || steady_clock::now() - last_draw_ >= milliseconds(100)) {
    draw();
  }
}

void StatusLine::draw() {
  // Clipped: a line that wrapped could not be rewritten in place.
  // Back to the start of the line, the text, then erase what an older, longer text left behind it.
  std::fputs(fmt::format("\r{}\x1b[K", clipped(text_, size_t(terminal_size(out_).columns) - 1)).c_str(),
             out_);
  std::fflush(out_);
  drawn_ = open_ = true;
  last_draw_ = steady_clock::now();
}

void StatusLine::finish() {
  if (!on_terminal_ || !open_) return;
  if (!drawn_) draw();
  std::fputc('\n', out_);
  std::fflush(out_);
  open_ = false;
}

Progress::Progress(std::string label, int64_t total, std::string unit, std::FILE* out)
    : label_(std::move(label)), unit_(std::move(unit)), total_(total), line_(out), start_(Clock::now()) {
  next_ = start_ + seconds(1);
}

std::string Progress::text(double elapsed) const {
  const double done = static_cast<double>(done_), total = static_cast<double>(total_);
  const double rate = elapsed > 0 ? done / elapsed : 0;
  std::string text =
      fmt::format("{}  {:3.0f}%  {} / {} {}  {}/s", label_, total > 0 ? 100 * done / total : 100,
                  short_count(done), short_count(total), unit_, short_count(rate));
  if (done_ >= total_) return text + fmt::format("  in {}", short_duration(elapsed));
  return rate > 0 ? text + fmt::format("  ETA {}", short_duration((total - done) / rate)) : text;
}

void Progress::set(int64_t done) {
  done_ = done;
  const auto now = Clock::now();
  if (now < next_) return;
  line_.update(text(std::chrono::duration<double>(now - start_).count()));
  shown_ = true;
  next_ = now + (line_.on_terminal() ? milliseconds(100) : milliseconds(10000));
}

void Progress::finish() {
  if (!shown_) return;
  shown_ = false;
  line_.update(text(std::chrono::duration<double>(Clock::now() - start_).count()));
  line_.finish();
}

}  // namespace weft
