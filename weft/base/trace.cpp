#include "weft/base/trace.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

namespace weft {
namespace {

struct ThreadState {
  Span* innermost = nullptr;
  SpanKind kind = SpanKind::other;
  int id = -1;
};

ThreadState& this_thread() {
  static std::atomic<int> threads = 0;
  thread_local ThreadState state;
  if (state.id < 0) state.id = threads++;
  return state;
}

bool claims_all_inside(SpanKind kind) { return kind >= SpanKind::evaluation; }

// What becomes of the current kind where `kind` is asked for.
SpanKind inner_kind(SpanKind kind) {
  const SpanKind current = this_thread().kind;
  return claims_all_inside(current) ? current : kind;
}

}  // namespace

std::string_view to_string(SpanKind kind) {
  constexpr std::string_view kNames[] = {"other", "embedding",  "attention",     "mlp",
                                         "norm",  "head",       "communication", "optimizer",
                                         "data",  "evaluation", "checkpoint",    "sampling"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view to_string(Pass pass) {
  constexpr std::string_view kNames[] = {"", "forward", "backward"};
  return kNames[static_cast<size_t>(pass)];
}

std::string_view to_string(SpanLevel level) {
  constexpr std::string_view kNames[] = {"phase", "block", "op"};
  return kNames[static_cast<size_t>(level)];
}

std::string SpanEvent::title() const {
  std::string text = name;
  if (index >= 0) text += fmt::format(" {}", index);
  if (pass != Pass::none) text += fmt::format(" {}", to_string(pass));
  return text;
}

void add(OpTotals* totals, const SpanEvent& span) {
  const std::string_view op = span.level == SpanLevel::block ? "other" : span.name;
  OpTotal& total = (*totals)[{op, span.kind, span.pass}];
  ++total.calls;
  total.nanoseconds += span.own;
  total.work.flops += span.work.flops;
  total.work.bytes += span.work.bytes;
}

Trace& Trace::global() {
  static Trace trace;
  return trace;
}

int64_t Trace::steady_clock() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Trace::restart(Clock clock) {
  const std::lock_guard lock(mutex_);
  clock_ = clock;
  totals_.clear();
  events_.clear();
  keeps_events_ = false;
}

OpTotals Trace::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

void Trace::keep_events() { keeps_events_ = true; }

std::vector<SpanEvent> Trace::take_events() {
  const std::lock_guard lock(mutex_);
  keeps_events_ = false;
  return std::exchange(events_, {});
}

void Trace::ended(SpanEvent&& span) {
  const std::lock_guard lock(mutex_);
  add(&totals_, span);
  if (keeps_events_) events_.push_back(std::move(span));
}

void Trace::ended_beside(const char* name, std::string what, int64_t begin, const Work& work) {
  const std::lock_guard lock(mutex_);
  if (!keeps_events_) return;
  SpanEvent event;
  event.name = name;
  event.level = SpanLevel::op;
  event.kind = SpanKind::communication;
  event.begin = begin, event.end = clock_();
  event.work = work;
  event.what = std::move(what);
  events_.push_back(std::move(event));
}

Span::Span(SpanLevel level, const char* name, SpanKind kind, const SpanOptions& options)
    : parent_(this_thread().innermost), outer_kind_(this_thread().kind) {
  ThreadState& thread = this_thread();
  event_ = {.name = name,
            .index = options.index,
            .level = level,
            .kind = inner_kind(kind),
            .pass = options.pass,
            .thread = thread.id,
            .begin = 0,
            .end = 0,
            .own = 0,
            .work = {},
            .shapes = {},
            .what = {}};
  thread.innermost = this;
  thread.kind = event_.kind;
  event_.begin = Trace::global().clock_();
}

Span::Span(SpanLevel level, const char* name, const SpanOptions& options)
    : Span(level, name, current_kind(), options) {}

Span::~Span() {
  event_.end = Trace::global().clock_();
  const int64_t duration = event_.end - event_.begin;
  event_.own = duration - inside_;
  if (parent_) parent_->inside_ += duration;
  ThreadState& thread = this_thread();
  thread.innermost = parent_;
  thread.kind = outer_kind_;
  Trace::global().ended(std::move(event_));
}

KindScope::KindScope(SpanKind kind) : outer_(this_thread().kind) { this_thread().kind = inner_kind(kind); }
KindScope::~KindScope() { this_thread().kind = outer_; }

SpanKind current_kind() { return this_thread().kind; }

}  // namespace weft
