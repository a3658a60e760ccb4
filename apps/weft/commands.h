// The subcommands of weft: each has a file of its own and adds itself to the command line. Its callback does
// the work while the command line is parsed and sets *status to the process's exit status; it throws Error
// for what the user can mend.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "weft/base/config.h"

namespace weft {

void add_train_command(CLI::App& app, int* status);
void add_generate_command(CLI::App& app, int* status);
void add_export_command(CLI::App& app, int* status);
void add_report_command(CLI::App& app, int* status);
void add_watch_command(CLI::App& app, int* status);
void add_logits_command(CLI::App& app, int* status);
void add_config_command(CLI::App& app, int* status);
void add_tokenizer_command(CLI::App& app, int* status);
void add_data_command(CLI::App& app, int* status);
void add_parity_command(CLI::App& app, int* status);
void add_mesh_command(CLI::App& app, int* status);
void add_bench_command(CLI::App& app, int* status);
void add_comm_command(CLI::App& app, int* status);
void add_info_command(CLI::App& app, int* status);

/// Adds `--set SECTION.KEY=VALUE`, repeatable.
void add_set_option(CLI::App& command, std::vector<std::string>* overrides);

/// Adds `--ranks N`.
CLI::Option* add_ranks_option(CLI::App& command, int64_t* ranks, const std::string& help);

/// Runs the command of this process, but for its --ranks, as so many ranks; see run_job in comm/supervisor.h.
int run_on_ranks(int64_t ranks, const std::string& log_dir);

/// How a command divides a model: `--ranks N` and `--set` of [parallel] and [comm].
struct Job {
  int64_t ranks = 1;
  std::vector<std::string> overrides;
};
std::shared_ptr<Job> add_job_options(CLI::App& command);

/// Starts the ranks, or, where there is only one or this is one of them, calls `command` with a config in
/// which [parallel] and [comm] count.
int run(const Job& job, const std::function<int(const Config&)>& command);

/// load_config. `warns`: prints the warnings.
Config load_config_and_warn(const std::string& path, const std::vector<std::string>& overrides, bool warns);

/// The config as a run would use it: read, checked, the shape taken from model.from_hf, derived values filled
/// in. `warns`: prints the warnings.
Config load_resolved_config(const std::string& path, const std::vector<std::string>& overrides,
                            bool warns = true);

}  // namespace weft
