#include "weft/comm/operation.h"

#include <algorithm>
#include <chrono>

#include <sched.h>
#include <unistd.h>

#include "weft/base/trace.h"
#include "weft/comm/progress.h"
#include "weft/comm/recordings.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSpins = 300, kYields = 2000;  // some 50 µs, and a millisecond or more

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// What the flight recorders of the group's ranks say, as far as they can be read here.
std::string comparison(const Channel& channel) {
  if (!recorder()) return "";
  try {
    const auto recordings = read_recordings(Env::system(), recorder()->dir());
    return fmt::format("\n{}", compare_recordings(recordings, channel.name, channel.ranks));
  } catch (const Error& error) {
    return fmt::format("\nWho waits for whom cannot be said: {}", error.what());
  }
}

}  // namespace

CommTotal& Channel::total(const char* kind) {
  CommTotal*& total = totals[kind];
  if (!total) total = &comm_totals()[{name, kind}];
  return *total;
}

Operation::Operation(std::shared_ptr<Channel> channel, const char* kind, int tag)
    : channel_(std::move(channel)),
      kind_(kind),
      tag_(tag),
      total_(channel_->total(kind)),
      begin_(Trace::global().now()) {
  ++total_.calls;
}

void Operation::record(const OpRecord& what) {
  what_ = what;
  if (recorder()) records_.push_back(recorder()->issued(what));
}

void Operation::send(const at::Tensor& tensor, int peer, int tag) {
  count(int64_t(tensor.nbytes()));
  send_aside(tensor, peer, tag);
}

void Operation::send_aside(const at::Tensor& tensor, int peer, int tag) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(tensor);
  channel_->link.send(tensor.data_ptr(), int64_t(tensor.nbytes()), peer, tag < 0 ? tag_ : tag, &messages_);
}

void Operation::receive(const at::Tensor& tensor, int peer, int tag) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(tensor);
  channel_->link.receive(tensor.data_ptr(), int64_t(tensor.nbytes()), peer, tag < 0 ? tag_ : tag, &messages_);
}

void Operation::progress() {
  const std::lock_guard lock(mutex_);
  if (error_) return;
  try {
    MpiLink::test(&messages_);
  } catch (const CommError& error) {  // the thread that waits for it throws it
    error_ = std::make_exception_ptr(CommError(fmt::format("{}: {}", title(), error.what())));
  }
}

bool Operation::test() {
  if (done_) return true;
  try {
    move_on();
  } catch (const CommError& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::make_exception_ptr(CommError(fmt::format("{}: {}", title(), error.what())));
    leave(*this, /*failed=*/true);
    std::rethrow_exception(error_);
  }
  return done_;
}

void Operation::move_on() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (error_) std::rethrow_exception(error_);
      if (!MpiLink::test(&messages_)) return;
    }
    if (next_.empty()) break;
    for (int peer = 0; peer < channel_->size(); ++peer)
      if (!next_.front().has_come(peer)) return;
    const Step step = std::move(next_.front());
    next_.pop_front();
    if (step.work) step.work();
  }
  done_ = true;
  kept_.clear();
  for (const uint64_t number : records_) recorder()->done(number);
  if (Trace::global().keeps_events())
    Trace::global().ended_beside(kind_, title(), begin_, {.flops = 0, .bytes = double(bytes_)});
  leave(*this, /*failed=*/false);
}

void Operation::wait() {
  if (done_) return;
  const Span span(SpanLevel::op, kind_, SpanKind::communication);
  const auto begin = Clock::now();
  for (int64_t turns = 0; !test(); ++turns) {
    poll_operations(this);
    // Others need the cores: spin a moment, then let them run, then sleep.
    if (turns > kSpins + kYields)
      usleep(50);
    else if (turns > kSpins)
      sched_yield();
    if (turns % 64 == 0 && seconds_since(begin) > comm_config().timeout) throw CommError(timeout_text());
  }
  total_.seconds += seconds_since(begin);
}

std::string Operation::title() const {
  const std::string number = what_.sequence > 0 ? fmt::format(" #{}", what_.sequence) : "";
  return fmt::format("{}{} over {}", kind_, number, channel_->name);
}

std::string Operation::timeout_text() {
  std::vector<int64_t> missing, slow;
  {
    const std::lock_guard lock(mutex_);
    for (const Message& message : messages_) (message.expected >= 0 ? missing : slow).push_back(message.peer);
  }
  if (missing.empty()) missing = slow;
  if (missing.empty() && !next_.empty())
    for (int peer = 0; peer < channel_->size(); ++peer)
      if (!next_.front().has_come(peer)) missing.push_back(channel_->ranks[size_t(peer)]);
  std::ranges::sort(missing);
  missing.erase(std::ranges::unique(missing).begin(), missing.end());
  return fmt::format("{} waited {:g} s for {} (comm.timeout){}", title(), comm_config().timeout,
                     ranks_text(missing), comparison(*channel_));
}

}  // namespace weft
