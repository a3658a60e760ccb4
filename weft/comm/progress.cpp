#include "weft/comm/progress.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace weft {
namespace {

struct Progress {
  std::mutex mutex;  // of the lists
  std::vector<std::shared_ptr<Operation>> under_way, failed;
  CommTotals totals;
  CommConfig config;
  std::unique_ptr<FlightRecorder> recorder;
  std::atomic<bool> stop = false;
  std::thread thread;
};

Progress& progress() {
  static Progress state;
  return state;
}

void run_thread() {
  while (!progress().stop) {
    std::vector<std::shared_ptr<Operation>> under_way;
    {
      const std::lock_guard lock(progress().mutex);
      under_way = progress().under_way;
    }
    for (const auto& operation : under_way) operation->progress();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace

void configure_progress(const CommConfig& comm, bool communicates) {
  progress().config = comm;
  const bool wanted = communicates && comm.progress == "thread";
  if (!wanted) {
    stop_progress();
  } else if (!progress().thread.joinable()) {
    progress().stop = false;
    progress().thread = std::thread(run_thread);
  }
}

const CommConfig& comm_config() { return progress().config; }

void stop_progress() {
  progress().stop = true;
  if (progress().thread.joinable()) progress().thread.join();
}

void set_recorder(std::unique_ptr<FlightRecorder> recorder) { progress().recorder = std::move(recorder); }
FlightRecorder* recorder() { return progress().recorder.get(); }

void enter(std::shared_ptr<Operation> operation) {
  const std::lock_guard lock(progress().mutex);
  progress().under_way.push_back(std::move(operation));
}

void leave(const Operation& operation, bool failed) {
  const std::lock_guard lock(progress().mutex);
  auto& list = progress().under_way;
  const auto found = std::ranges::find(list, &operation, &std::shared_ptr<Operation>::get);
  if (found == list.end()) return;
  if (failed) progress().failed.push_back(*found);
  list.erase(found);
}

// Only this thread changes the list, so it needs no lock to read it. One that is done leaves it.
void poll_operations(const Operation* except) {
  if (recorder()) recorder()->alive();
  auto& list = progress().under_way;
  for (size_t i = 0; i < list.size();) {
    const std::shared_ptr<Operation> operation = list[i];
    if (operation.get() == except || !operation->test()) ++i;
  }
}

CommTotals& comm_totals() { return progress().totals; }

}  // namespace weft
