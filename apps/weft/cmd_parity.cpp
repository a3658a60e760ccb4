// `weft parity`: the one-curve table.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "weft/base/env.h"
#include "weft/base/error.h"
#include "weft/comm/place.h"
#include "weft/comm/supervisor.h"
#include "weft/parity/table.h"

#include "apps/weft/commands.h"
#include "apps/weft/libweft.h"

namespace weft {
namespace {

/// The directory of the rows' runs, empty. What an earlier table left there goes; anything else stays, and is
/// an error.
void make_output(const ParityOptions& options) {
  Env& env = Env::system();
  const std::string marker = options.output + "/parity.toml";
  if (env.exists(options.output) && !env.list(options.output).empty() && !env.exists(marker))
    fail("{} is there and holds no earlier table's runs: choose another --output", options.output);
  const std::string table = env.read(options.table);
  env.remove_all(options.output);
  env.create_dirs(options.output);
  write_file_atomically(env, marker, table);
}

/// Starts as many ranks as the largest row needs.
int run_on_all_ranks(const ParityOptions& options) {
  const std::vector<ParityRow> rows = all_rows(read_parity_table(options.table));
  std::vector<std::string> arguments = {"parity", options.table, "--output", options.output};
  if (options.full) arguments.push_back("--full");
  if (options.mutations) arguments.push_back("--mutations");
  return run_job(std::ranges::max(rows, {}, &ParityRow::ranks).ranks, arguments, options.output + "/logs");
}

}  // namespace

void add_parity_command(CLI::App& app, int* status) {
  CLI::App* command = app.add_subcommand("parity", "Check that layouts leave the loss curve as it is");
  const auto options = std::make_shared<ParityOptions>();
  command
      ->add_option("TABLE", options->table,
                   "TOML: a base config, choices that make another curve, and choices that must not")
      ->required();
  command->add_option("--output", options->output, "Directory of the rows' runs; emptied first")
      ->capture_default_str();
  command->add_flag("--full", options->full, "Every combination of choices, not only every pair of them");
  command->add_flag("--mutations", options->mutations,
                    "Leave out one sum of the algorithm after the other: each must turn a row red");
  command->add_option("--fresh", options->fresh, "Only so many rows, each started by itself as `weft train`")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}));
  command->footer(
      "Each row is trained on its own mesh and compared with one rank: loss and gradient norm of every step, "
      "the final\nweights, the bytes held and sent.\n"
      "Examples:\n"
      "  weft parity tests/parity/table.toml\n"
      "  weft parity tests/parity/table.toml --mutations");
  command->callback([=] {
    options->executable = std::filesystem::read_symlink("/proc/self/exe").string();
    const Place place = find_place();
    const bool is_rank = place.launcher == Launcher::mpi || place.size > 1;
    if (!is_rank) make_output(*options);
    *status = is_rank || options->fresh > 0 ? libweft_function<decltype(weft_parity)>("weft_parity")(*options)
                                            : run_on_all_ranks(*options);
  });
}

}  // namespace weft
