// Where the time goes. A Span times a stretch of work by one thread; spans nest. Each adds its own time, that
// of the spans inside it left out, to the totals of its op, so that totals over everything inside an
// outermost span sum to its duration. While a profile is being taken the spans are kept as events, too.
//
// Costs two readings of the clock and one look-up a span: meant for ops, blocks and phases of a step, not for
// inner loops. Thread-safe; a span must be destroyed by the thread that made it, the innermost first. Spans
// of other threads stand beside, not inside: once work is done by several, only the totals of one sum to its
// time.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

/// What a stretch of time serves: a kind of layer, or another part of a run.
enum class SpanKind {
  other,
  embedding,
  attention,
  mlp,
  norm,
  head,
  communication,
  optimizer,
  data,
  evaluation,  // from here on: all that is done inside counts as this kind, layers too
  checkpoint,
  sampling,
};
std::string_view to_string(SpanKind kind);

enum class Pass { none, forward, backward };
std::string_view to_string(Pass pass);  // none: ""

/// A phase of a run (reading data, the optimizer's step), a block of the model, or an op. The own time of a
/// block is what lies between its ops (residual additions, autograd) and counts as an op "other".
enum class SpanLevel { phase, block, op };
std::string_view to_string(SpanLevel level);

/// What an op computed and touched. flops: of matrix products only, a multiplication and an addition being
/// two; bytes: each tensor that it reads or writes counted once, whatever the caches make of it.
struct Work {
  double flops = 0, bytes = 0;
};

/// A span that has ended. Times are in nanoseconds of the trace's clock.
struct SpanEvent {
  const char* name;    // of static storage, as all names of spans
  int64_t index = -1;  // the layer or step; -1: none
  SpanLevel level = SpanLevel::phase;
  SpanKind kind = SpanKind::other;
  Pass pass = Pass::none;
  int thread = 0;  // 0, 1, … in the order of their first spans
  int64_t begin = 0, end = 0;
  int64_t own = 0;  // end - begin without the spans inside
  Work work;
  std::string shapes;  // of an op's inputs, "[512, 256] [256]"
  std::string what;    // not empty: it went on beside what threads did, and is in no total: "dp_shard #17"

  bool is_beside() const { return !what.empty(); }
  std::string title() const;  // "layer 3 forward"
};

struct OpKey {
  std::string_view op;
  SpanKind kind;
  Pass pass;
  auto operator<=>(const OpKey&) const = default;
};

struct OpTotal {
  int64_t calls = 0;
  int64_t nanoseconds = 0;
  Work work;
};

using OpTotals = std::map<OpKey, OpTotal>;

/// Adds a span's own time to the total of its op.
void add(OpTotals* totals, const SpanEvent& span);

/// The process's record of spans.
class Trace {
 public:
  using Clock = int64_t (*)();  // nanoseconds, never falling

  static Trace& global();
  static int64_t steady_clock();

  /// Forgets everything, and reads `clock` from now on. No span may be open.
  void restart(Clock clock = steady_clock);

  OpTotals totals() const;  // of the spans that have ended

  int64_t now() const { return clock_(); }
  /// An operation that went on beside the threads' work and has ended now: kept if events are kept.
  void ended_beside(const char* name, std::string what, int64_t begin, const Work& work);

  void keep_events();                    // from now on
  std::vector<SpanEvent> take_events();  // those of the spans that have ended since, and keeps no more
  bool keeps_events() const { return keeps_events_; }

 private:
  friend class Span;
  void ended(SpanEvent&& span);

  Clock clock_ = steady_clock;
  mutable std::mutex mutex_;
  OpTotals totals_;
  std::vector<SpanEvent> events_;
  std::atomic<bool> keeps_events_ = false;
};

struct SpanOptions {
  Pass pass = Pass::none;
  int64_t index = -1;
};

/// Times its own lifetime. Spans inside it are of its kind unless they or a KindScope say otherwise.
class Span {
 public:
  Span(SpanLevel level, const char* name, SpanKind kind, const SpanOptions& options = {});
  Span(SpanLevel level, const char* name, const SpanOptions& options = {});  // of the current kind
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  void did(const Work& work) { event_.work = work; }
  void note_shapes(std::string shapes) { event_.shapes = std::move(shapes); }

 private:
  SpanEvent event_;
  Span* parent_;
  SpanKind outer_kind_;
  int64_t inside_ = 0;  // duration of the spans directly inside
};

/// The kind of the spans to come, until it is destroyed.
class KindScope {
 public:
  explicit KindScope(SpanKind kind);
  ~KindScope();
  KindScope(const KindScope&) = delete;
  KindScope& operator=(const KindScope&) = delete;

 private:
  SpanKind outer_;
};

SpanKind current_kind();

}  // namespace weft
