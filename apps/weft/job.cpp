#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/comm/mesh.h"
#include "weft/comm/place.h"
#include "weft/comm/supervisor.h"

#include "apps/weft/commands.h"

namespace weft {
namespace {

/// The arguments of this process, but for --ranks.
std::vector<std::string> arguments_of_a_rank() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  arguments.erase(arguments.begin());
  const auto option = std::ranges::find_if(
      arguments, [](const std::string& text) { return text == "--ranks" || text.starts_with("--ranks="); });
  WEFT_ASSERT(option != arguments.end(), "no --ranks among {} arguments", arguments.size());
  arguments.erase(option, option + (*option == "--ranks" ? 2 : 1));
  return arguments;
}

}  // namespace

int run_on_ranks(int64_t ranks, const std::string& log_dir) {
  return run_job(ranks, arguments_of_a_rank(), log_dir);
}

std::shared_ptr<Job> add_job_options(CLI::App& command) {
  const auto job = std::make_shared<Job>();
  add_ranks_option(command, &job->ranks, "Divide the model among N processes of this machine");
  command
      .add_option("--set", job->overrides, "How they divide it: a key of [parallel] or [comm] (repeatable)")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
  return job;
}

int run(const Job& job, const std::function<int(const Config&)>& command) {
  for (const std::string& text : job.overrides)
    if (!text.starts_with("parallel.") && !text.starts_with("comm."))
      fail("--set {}: expected a key of [parallel] or [comm]; the model is what it is", text);
  Config config = load_config_and_warn("", job.overrides, /*warns=*/find_place().rank == 0);
  resolve(&config);
  if (job.ranks == 1) return command(config);
  begin_own_job();
  const Mesh mesh(config.parallel, job.ranks);
  const auto logs = std::filesystem::temp_directory_path() / fmt::format("weft-logs-{}", getpid());
  const int status = run_on_ranks(job.ranks, logs.string());
  if (status == 0) std::filesystem::remove_all(logs);
  return status;
}

}  // namespace weft
