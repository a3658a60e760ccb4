// `weft parity`: the one-curve table.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "weft/base/error.h"

#include "apps/weft/commands.h"
#include "apps/weft/libweft.h"

namespace weft {

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
    *status = libweft_function<decltype(weft_parity)>("weft_parity")(*options);
  });
}

}  // namespace weft
