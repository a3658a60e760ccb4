// weft bench comm
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/comm/group.h"
#include "weft/commands/command.h"
#include "weft/entry.h"
#include "weft/train/process.h"

namespace weft {
namespace {

// Each time is the least of so many, each the mean of operations that take about so long: others use the
// machine, too.
constexpr int kTimes = 5;
constexpr double kSeconds = 0.05;

using Clock = std::chrono::steady_clock;

class CommBench {
 public:
  CommBench(const BenchCommOptions& options, std::shared_ptr<Group> group)
      : options_(options), group_(std::move(group)), n_(group_->size()) {}

  void run() {
    say(
        fmt::format("{} ranks, fp32; algbw: size / time, busbw: bytes that each rank sends / time; GB/s\n"
                    "{:<16}{:<10}{:>12}{:>12}{:>10}{:>10}\n",
                    n_, "operation", "path", "bytes", "us", "algbw", "busbw"));
    for (const Kind& kind : kinds()) {
      if (!options_.operations.empty() &&
          std::ranges::find(options_.operations, kind.name) == options_.operations.end())
        continue;
      for (const bool shared : {false, true}) {
        if (shared && !kind.can_share) continue;
        int64_t last = 0;
        for (int64_t bytes = options_.min_bytes; bytes <= options_.max_bytes; bytes *= options_.factor) {
          const int64_t numel = std::max<int64_t>(1, bytes / 4 / n_) * n_;
          if (numel != last) measure(kind, numel, shared);
          last = numel;
        }
      }
    }
  }

 private:
  struct Kind {
    const char* name;
    double bus_factor;  // bytes that each rank sends, of the size
    bool can_share;
    std::function<void(const at::Tensor& whole)> once;
  };

  std::vector<Kind> kinds() {
    const double others = double(n_ - 1) / n_;
    const auto own = [this](const at::Tensor& whole) {
      return whole.narrow(0, whole.numel() / n_ * group_->rank(), whole.numel() / n_);
    };
    return {
        {"all_reduce", 2 * others, true,
         [this](const at::Tensor& whole) { group_->all_reduce(whole).wait(); }},
        {"all_gather", others, true,
         [=, this](const at::Tensor& whole) { group_->all_gather(whole, own(whole)).wait(); }},
        {"reduce_scatter", others, true,
         [=, this](const at::Tensor& whole) { group_->reduce_scatter(own(whole), whole).wait(); }},
        {"all_to_all", others, false,
         [this](const at::Tensor& whole) {
           if (received_.numel() != whole.numel()) received_ = at::zeros_like(whole);
           const std::vector<int64_t> counts(size_t(n_), whole.numel() / n_);
           group_->all_to_all(received_, whole, counts, counts).wait();
         }},
        {"broadcast", 1, false, [this](const at::Tensor& whole) { group_->broadcast(whole, 0).wait(); }},
        // To and fro between the first two ranks.
        {"send_recv", 1, false,
         [this](const at::Tensor& whole) {
           if (group_->rank() == 0) group_->send(whole, 1, 0).wait(), group_->recv(whole, 1, 0).wait();
           if (group_->rank() == 1) group_->recv(whole, 0, 0).wait(), group_->send(whole, 0, 0).wait();
         }},
    };
  }

  void measure(const Kind& kind, int64_t numel, bool shared) {
    const at::Tensor whole = shared ? group_->new_buffer(numel, at::kFloat) : at::zeros({numel});
    for (int i = 0; i < 3; ++i) kind.once(whole);
    const double estimate = time(kind, whole, 3);
    const int64_t turns = std::clamp<int64_t>(int64_t(kSeconds / estimate), 1, 100'000);
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kTimes; ++i) best = std::min(best, time(kind, whole, turns));
    if (std::string(kind.name) == "send_recv") best /= 2;
    const double bytes = double(numel) * 4, algbw = bytes / best * 1e-9;
    say(fmt::format("{:<16}{:<10}{:>12}{:>12.1f}{:>10.2f}{:>10.2f}\n", kind.name,
                    shared ? "shared" : "messages", numel * 4, best * 1e6, algbw, algbw * kind.bus_factor));
  }

  /// Seconds that one takes, on the slowest rank.
  double time(const Kind& kind, const at::Tensor& whole, int64_t turns) {
    group_->barrier();
    const auto begin = Clock::now();
    for (int64_t turn = 0; turn < turns; ++turn) kind.once(whole);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count() / double(turns);
    return all_reduce(*group_, {seconds}, ReduceOp::max).front();
  }

  void say(const std::string& text) const {
    if (group_->rank() == 0) std::fputs(text.c_str(), stdout), std::fflush(stdout);
  }

  const BenchCommOptions& options_;
  std::shared_ptr<Group> group_;
  int n_;
  at::Tensor received_;
};

}  // namespace
}  // namespace weft

int weft_bench_comm(const weft::BenchCommOptions& options) {
  return weft::guarded([&] {
    weft::set_up_process(0);
    weft::World& world = weft::World::join(weft::CommConfig{}, "");
    if (world.size() == 1)
      weft::fail("one rank has nobody to communicate with: start more, as with --ranks 2");
    weft::CommBench(options, world.all("bench")).run();
    world.leave();
    return 0;
  });
}
