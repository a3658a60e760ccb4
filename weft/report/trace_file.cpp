#include "weft/report/trace_file.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kProcess = 0;  // the rank

double seconds(int64_t nanoseconds) { return 1e-9 * double(nanoseconds); }

int64_t sum_of(const OpTotals& totals) {
  int64_t sum = 0;
  for (const auto& [key, total] : totals) sum += total.nanoseconds;
  return sum;
}

Json metadata(const char* what, int thread, Json value) {
  return {{"name", what}, {"ph", "M"}, {"pid", kProcess}, {"tid", thread}, {"args", std::move(value)}};
}

Json complete_event(const SpanEvent& span, int64_t origin) {
  const auto microseconds = [](int64_t nanoseconds) { return double(nanoseconds) / 1000; };
  Json args = {{"kind", to_string(span.kind)}};
  if (span.work.flops > 0) args["flops"] = span.work.flops;
  if (span.work.bytes > 0) args["bytes"] = span.work.bytes;
  if (!span.shapes.empty()) args["shapes"] = span.shapes;
  return {{"name", span.title()},
          {"cat", to_string(span.level)},
          {"ph", "X"},
          {"ts", microseconds(span.begin - origin)},
          {"dur", microseconds(span.end - span.begin)},
          {"pid", kProcess},
          {"tid", span.thread},
          {"args", std::move(args)}};
}

/// A pair of events on a track beside those of the threads, where they may overlap.
void add_async_events(const SpanEvent& span, int64_t id, int64_t origin, Json* events) {
  Json event = {
      {"name", span.title()}, {"cat", to_string(span.kind)}, {"id", id}, {"pid", kProcess}, {"tid", 0}};
  event["ph"] = "b";
  event["ts"] = double(span.begin - origin) / 1000;
  event["args"] = {{"what", span.what}, {"bytes", span.work.bytes}};
  events->push_back(event);
  event["ph"] = "e";
  event["ts"] = double(span.end - origin) / 1000;
  event.erase("args");
  events->push_back(std::move(event));
}

std::string rate(double amount, int64_t nanoseconds) {
  return amount > 0 && nanoseconds > 0 ? fmt::format("{:.1f}", amount / double(nanoseconds)) : "-";
}

std::string share_of_peak(double flops, int64_t nanoseconds, double peak_flops) {
  if (flops <= 0 || nanoseconds <= 0 || peak_flops <= 0) return "-";
  return fmt::format("{:.0f}%", 100 * flops / seconds(nanoseconds) / peak_flops);
}

std::string table_row(const std::string& op, std::string_view pass, std::string_view kind,
                      const std::string& calls, const std::string& time, const std::string& share,
                      const std::string& flops, const std::string& peak, const std::string& bytes) {
  return fmt::format("{:<16} {:<8}  {:<10} {:>7} {:>10} {:>6} {:>9} {:>7} {:>7}\n", op, pass, kind, calls,
                     time, share, flops, peak, bytes);
}

}  // namespace

std::string op_times_json(int64_t steps, const OpTotals& totals) {
  Json ops = Json::array();
  for (const auto& [key, total] : totals)
    ops.push_back({{"op", key.op},
                   {"kind", to_string(key.kind)},
                   {"pass", to_string(key.pass)},
                   {"calls", total.calls},
                   {"seconds", seconds(total.nanoseconds)},
                   {"flops", total.work.flops},
                   {"bytes", total.work.bytes}});
  const Json whole = {{"steps", steps}, {"seconds", seconds(sum_of(totals))}, {"ops", std::move(ops)}};
  return whole.dump(1) + "\n";
}

std::string chrome_trace(const std::vector<SpanEvent>& spans, const std::string& process_name) {
  int64_t origin = spans.empty() ? 0 : spans.front().begin;
  std::set<int> threads;
  for (const SpanEvent& span : spans) {
    origin = std::min(origin, span.begin);
    if (!span.is_beside()) threads.insert(span.thread);
  }
  Json events = Json::array();
  events.push_back(metadata("process_name", 0, {{"name", process_name}}));
  events.push_back(metadata("process_sort_index", 0, {{"sort_index", kProcess}}));
  for (const int thread : threads)
    events.push_back(
        metadata("thread_name", thread, {{"name", thread == 0 ? "main" : fmt::format("thread {}", thread)}}));
  int64_t beside = 0;
  for (const SpanEvent& span : spans)
    if (span.is_beside())
      add_async_events(span, ++beside, origin, &events);
    else
      events.push_back(complete_event(span, origin));
  const Json whole = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return whole.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string top_ops_table(const std::vector<SpanEvent>& spans, double peak_flops, size_t most) {
  OpTotals totals;
  for (const SpanEvent& span : spans)
    if (!span.is_beside()) add(&totals, span);
  std::vector<std::pair<OpKey, OpTotal>> ops(totals.begin(), totals.end());
  std::stable_sort(ops.begin(), ops.end(),
                   [](const auto& a, const auto& b) { return a.second.nanoseconds > b.second.nanoseconds; });
  const double all = double(std::max<int64_t>(1, sum_of(totals)));
  std::string text = table_row("op", "pass", "part", "calls", "time", "share", "GFLOP/s", "of peak", "GB/s");
  for (size_t i = 0; i < std::min(most, ops.size()); ++i) {
    const auto& [key, total] = ops[i];
    text +=
        table_row(std::string(key.op), to_string(key.pass), to_string(key.kind),
                  fmt::format("{}", total.calls), fmt::format("{:.2f} ms", 1e-6 * double(total.nanoseconds)),
                  fmt::format("{:.1f}%", 100 * double(total.nanoseconds) / all),
                  rate(total.work.flops, total.nanoseconds),
                  share_of_peak(total.work.flops, total.nanoseconds, peak_flops),
                  rate(total.work.bytes, total.nanoseconds));
  }
  if (ops.size() > most) text += fmt::format("and {} that took less\n", ops.size() - most);
  return text;
}

}  // namespace weft
