#include "weft/report/watch.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>

#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/batch_ramp.h"
#include "weft/base/run_lock.h"
#include "weft/report/loss_plot.h"
#include "weft/report/step_log.h"

namespace weft {
namespace {

constexpr int kLeastPlotRows = 5, kMostPlotRows = 24;

const char* const kBold = "\x1b[1m";
const char* const kDim = "\x1b[2m";
const char* const kPlain = "\x1b[0m";

/// "━━━━━━────"
std::string progress_bar(double share, int width) {
  const int full = std::clamp(int(std::lround(share * width)), 0, width);
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < full ? "━" : "─";
  return bar;
}

struct Cell {
  std::string name, value;
};

std::vector<Cell> latest(const Metrics& metrics) {
  std::vector<Cell> cells;
  const auto add = [&](const char* key, const char* name, const std::function<std::string(double)>& text) {
    if (const double value = metrics.last(key); std::isfinite(value)) cells.push_back({name, text(value)});
  };
  const auto loss = [](double v) { return fmt::format("{:.4f}", v); };
  const auto count = [](double v) { return short_count(v); };
  add("loss", "loss", loss);
  add("valid_loss", "validation", loss);
  add("valid_loss_ema", "averaged", loss);
  add("baseline", "bigram", loss);
  add("lr", "learning rate", [](double v) { return fmt::format("{:.2e}", v); });
  add("grad_norm", "gradient norm", [](double v) { return fmt::format("{:.3g}", v); });
  add("tokens", "tokens", count);
  add("tokens_per_s", "tokens/s", count);
  add("mfu", "MFU", [](double v) { return fmt::format("{:.0f}%", 100 * v); });
  add("rss_mb", "memory", [](double v) { return fmt::format("{:.0f} MB", v); });
  if (!metrics.skipped.empty()) cells.push_back({"skipped", std::to_string(metrics.skipped.size())});
  return cells;
}

/// The cells in columns, as many as fit beside each other.
std::string table(const std::vector<Cell>& cells, int width, bool colour) {
  constexpr size_t kNameWidth = 14, kValueWidth = 10, kGap = 3;
  const size_t per_row = std::max<size_t>(1, (size_t(width) + kGap) / (kNameWidth + kValueWidth + kGap));
  std::string text;
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto& [name, value] = cells[i];
    text += fmt::format("{}{:<{}}{}{}{:>{}}{}", colour ? kDim : "", name, kNameWidth, colour ? kPlain : "",
                        colour ? kBold : "", value, kValueWidth, colour ? kPlain : "");
    text += (i + 1) % per_row == 0 || i + 1 == cells.size() ? "\n" : std::string(kGap, ' ');
  }
  return text;
}

/// `text` in at most `lines` lines of `width` characters, broken between words.
std::string wrapped(const std::string& text, size_t width, size_t lines) {
  std::string rest = one_line(text, text.size()), result;
  for (; characters(rest) > width && lines > 1; --lines) {
    std::string head = clipped(rest, width);
    if (const size_t space = head.rfind(' '); space != std::string::npos) head.resize(space + 1);
    result += head + "\n";
    rest.erase(0, head.size());
  }
  return result + one_line(rest, width) + "\n";
}

int line_count(const std::string& text) { return int(std::count(text.begin(), text.end(), '\n')); }

volatile std::sig_atomic_t interrupted = 0;

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

/// The terminal, cleared and without cursor; it gets the cursor back in the end, whatever happens.
class Screen {
 public:
  Screen() { print("\x1b[2J\x1b[?25l"); }
  ~Screen() { print("\x1b[?25h"); }
  Screen(const Screen&) = delete;

  /// Over what was there, line by line: no flicker.
  void show(const std::string& frame) {
    std::string text = "\x1b[H";
    for (const char c : frame) text += c == '\n' ? std::string("\x1b[K\n") : std::string(1, c);
    print(text + "\x1b[J");
  }
};

}  // namespace

RunWatch::RunWatch(Env& env, std::string run_dir) : env_(env), dir_(std::move(run_dir)), reader_(env, dir_) {}

bool RunWatch::poll() {
  const bool news = reader_.poll();
  if (news) {
    const std::optional<Config> config = saved_config(env_, dir_);
    plan_ = config ? std::optional(config->train) : std::nullopt;
  }
  std::vector<SampledText> samples = read_samples(env_, dir_);  // written after their step's metrics
  const bool new_samples = samples.size() != samples_.size();
  samples_ = std::move(samples);
  const RunState before = state_;
  const Metrics& metrics = reader_.metrics();
  if (metrics.step.empty())
    state_ = RunState::kWaiting;
  else if (run_is_locked(dir_))
    state_ = RunState::kRunning;
  else
    state_ = metrics.stopped_early || (steps() > 0 && metrics.step.back() >= steps()) ? RunState::kFinished
                                                                                      : RunState::kStopped;
  return news || new_samples || state_ != before;
}

double RunWatch::seconds_left() const {
  const Metrics& metrics = reader_.metrics();
  const Points rates = metrics.points("tokens_per_s");
  const size_t recent = std::min<size_t>(50, rates.size());
  double seconds_per_token = 0;
  for (size_t i = rates.size() - recent; i < rates.size(); ++i)
    seconds_per_token += 1 / rates[i].second / double(recent);
  const auto samples = int64_t(std::clamp(metrics.last("tokens"), 0.0, 1e18)) / plan_->seq_len;
  const int64_t steps_left = std::max<int64_t>(0, steps() - metrics.step.back());
  const uint64_t end = samples_after(*plan_, samples, steps_left);  // the batch may grow
  return seconds_per_token * double(end - uint64_t(samples)) * double(plan_->seq_len);
}

std::string RunWatch::waiting_text() const {
  if (!env_.exists(dir_)) return fmt::format("waiting: there is no {} yet", dir_);
  if (!run_is_locked(dir_)) return fmt::format("waiting: no process trains in {}, and no step is done", dir_);
  return fmt::format("waiting: the first step of {} is not done", dir_);
}

std::string RunWatch::state_text() const {
  if (state_ == RunState::kFinished) return "finished";
  if (state_ == RunState::kStopped) return "stopped";
  return plan_ && std::isfinite(reader_.metrics().last("tokens"))
             ? "running, " + short_duration(seconds_left()) + " left"
             : "running";
}

std::string RunWatch::frame(TerminalSize size, bool colour) const {
  if (state_ == RunState::kWaiting) return waiting_text() + "\n";
  const Metrics& metrics = reader_.metrics();
  const int width = std::max(40, size.columns - 1);
  const int64_t step = metrics.step.back();
  std::string head =
      fmt::format("{}{}{}   {}\n", colour ? kBold : "", dir_, colour ? kPlain : "", state_text());
  if (steps() > 0)
    head += fmt::format("{} step {} of {}, {}%\n\n", progress_bar(double(step) / double(steps()), width / 3),
                        step, steps(), 100 * step / steps());
  else
    head += fmt::format("step {}\n\n", step);

  std::string foot = "\n" + table(latest(metrics), width, colour);
  if (const auto best = metrics.lowest("valid_loss"))
    foot += fmt::format("best validation loss {:.4f}, at step {}\n", best->second, int64_t(best->first));
  if (!samples_.empty()) {
    const SampledText& sample = samples_.back();
    foot += fmt::format("\nwritten at step {}:\n{}", sample.step,
                        wrapped(sample.prompt + sample.text, size_t(width), 3));
  }
  // Beside its rows the plot has a line for the label, two for the axis and one for the legend.
  const int rows = size.rows - 1 - line_count(head) - line_count(foot) - 4;
  return head +
         terminal_plot(loss_plot("", metrics), width, std::clamp(rows, kLeastPlotRows, kMostPlotRows),
                       colour) +
         foot;
}

std::string RunWatch::line() const {
  if (state_ == RunState::kWaiting) return waiting_text();
  const Metrics& metrics = reader_.metrics();
  std::string text = steps() > 0 ? fmt::format("step {}/{}", metrics.step.back(), steps())
                                 : fmt::format("step {}", metrics.step.back());
  for (const auto& [name, value] : latest(metrics)) text += fmt::format("  {} {}", name, value);
  return text + "  " + state_text();
}

void watch_run(Env& env, const std::string& run_dir, bool once) {
  RunWatch watch(env, run_dir);
  const bool terminal = isatty(1) != 0;
  watch.poll();
  if (once) return print(watch.frame(terminal_size(stdout), terminal));
  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });
  std::optional<Screen> screen;
  if (terminal) screen.emplace();
  TerminalSize size{0, 0};
  for (bool news = true; !interrupted; news = watch.poll()) {
    const TerminalSize now = terminal_size(stdout);
    const bool resized = now.columns != size.columns || now.rows != size.rows;
    size = now;
    if (screen && (news || resized)) screen->show(watch.frame(size, true));
    if (!screen && news) print(watch.line() + "\n");
    if (watch.state() == RunState::kFinished) break;
    for (int tick = 0; tick < 10 && !interrupted; ++tick)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace weft
