// `weft bench`: what the machine gives.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/place.h"
#include "weft/comm/supervisor.h"

#include "apps/weft/commands.h"
#include "apps/weft/libweft.h"

namespace weft {
namespace {

const std::vector<std::string> kOperations = {"all_reduce", "all_gather", "reduce_scatter",
                                              "all_to_all", "broadcast",  "send_recv"};

}  // namespace

void add_bench_command(CLI::App& app, int* status) {
  CLI::App* group = app.add_subcommand("bench", "Measure what the machine gives");
  group->require_subcommand(1);
  CLI::App* command =
      group->add_subcommand("comm", "Latency and bandwidth of the operations between ranks, by size");
  const auto options = std::make_shared<BenchCommOptions>();
  const auto ranks = std::make_shared<int64_t>(1);
  const auto log_dir = std::make_shared<std::string>("runs/bench");
  CLI::Option* const rank_option =
      add_ranks_option(*command, ranks.get(), "Start N processes of this machine (without it: under mpirun)");
  command->add_option("--operation", options->operations, "Only these; repeatable (default: all)")
      ->check(CLI::IsMember(kOperations));
  command->add_option("--min-bytes", options->min_bytes, "The smallest size")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{8}, int64_t{1} << 40));
  command->add_option("--max-bytes", options->max_bytes, "The largest size")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{8}, int64_t{1} << 40));
  command->add_option("--factor", options->factor, "From one size to the next")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20));
  command->add_option("--log-dir", *log_dir, "Where --ranks puts the logs of the ranks")
      ->capture_default_str();
  command->footer(
      "As nccl-tests does: algbw is the size over the time, busbw what each rank sends over it. Each row is "
      "timed\nwith messages and, where they exist, in shared memory.\n"
      "Examples:\n"
      "  weft bench comm --ranks 2\n"
      "  mpirun -np 8 weft bench comm --operation all_reduce --max-bytes 1073741824");
  command->callback([=] {
    if (rank_option->count() > 0) begin_own_job();
    *status = *ranks > 1 ? run_on_ranks(*ranks, *log_dir)
                         : libweft_function<decltype(weft_bench_comm)>("weft_bench_comm")(*options);
  });
}

}  // namespace weft
