#include "weft/comm/progress.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include <sched.h>
#include <unistd.h>

#include "weft/base/trace.h"
#include "weft/comm/operation.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Progress {
  std::mutex mutex;  // of the list
  std::vector<std::shared_ptr<Operation>> under_way;
  std::atomic<size_t> count = 0;  // of the list: lets poll() return at once
  CommTotals totals;
  double timeout = 600;
  std::atomic<bool> stop = false;
  std::thread thread;
};

Progress& progress() {
  static Progress state;
  return state;
}

std::vector<std::shared_ptr<Operation>> under_way() {
  const std::lock_guard lock(progress().mutex);
  return progress().under_way;
}

void leave(const Operation& operation) {
  const std::lock_guard lock(progress().mutex);
  auto& list = progress().under_way;
  std::erase_if(list, [&](const auto& other) { return other.get() == &operation; });
  progress().count = list.size();
}

CommTotal& total_of(const Operation& operation) {
  return progress().totals[{operation.group(), operation.kind()}];
}

void run_thread() {
  while (!progress().stop) {
    for (const auto& operation : under_way()) operation->progress();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace

void Operation::send(const at::Tensor& tensor, int peer, int tag) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(tensor);
  total_of(*this).bytes += int64_t(tensor.nbytes());
  link_.send(tensor.data_ptr(), int64_t(tensor.nbytes()), peer, tag < 0 ? tag_ : tag, &messages_);
}

void Operation::receive(const at::Tensor& tensor, int peer, int tag) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(tensor);
  link_.receive(tensor.data_ptr(), int64_t(tensor.nbytes()), peer, tag < 0 ? tag_ : tag, &messages_);
}

void Operation::progress() {
  const std::lock_guard lock(mutex_);
  try {
    MpiLink::test(&messages_);
  } catch (const CommError&) {
    error_ = std::current_exception();  // the thread that waits for it throws it
  }
}

bool Operation::test() {
  while (!done_) {
    {
      const std::lock_guard lock(mutex_);
      if (error_) std::rethrow_exception(error_);
      if (!MpiLink::test(&messages_)) return false;
    }
    if (next_.empty()) {
      done_ = true;
      kept_.clear();
      leave(*this);
      break;
    }
    const auto work = std::move(next_.front());
    next_.pop_front();
    work();
  }
  return true;
}

void Operation::wait() {
  if (done_) return;
  const Span span(SpanLevel::op, kind_, SpanKind::communication);
  const auto begin = Clock::now();
  for (int64_t turns = 0; !test(); ++turns) {
    poll_operations();
    // Others need the cores: spin a moment, then let them run, then sleep.
    if (turns > 2000)
      usleep(50);
    else if (turns > 50)
      sched_yield();
    if (turns % 64 == 0 && seconds_since(begin) > weft::progress().timeout)
      throw CommError(fmt::format("{} over {} waited {:.0f} s for other ranks (comm.timeout)", kind_, group_,
                                  weft::progress().timeout));
  }
  total_of(*this).seconds += seconds_since(begin);
}

void enter(std::shared_ptr<Operation> operation) {
  ++total_of(*operation).calls;
  const std::lock_guard lock(progress().mutex);
  progress().under_way.push_back(std::move(operation));
  progress().count = progress().under_way.size();
}

void configure_progress(const CommConfig& comm, bool communicates) {
  progress().timeout = comm.timeout;
  if (communicates && comm.progress == "thread" && !progress().thread.joinable())
    progress().thread = std::thread(run_thread);
}

void stop_progress() {
  progress().stop = true;
  if (progress().thread.joinable()) progress().thread.join();
}

void poll_operations() {
  if (progress().count == 0) return;
  for (const auto& operation : under_way()) operation->test();
}

CommTotals comm_totals() { return progress().totals; }

}  // namespace weft
