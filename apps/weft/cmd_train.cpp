// `weft train`: trains a model as a config says.
#include <memory>

#include "weft/base/error.h"
#include "weft/base/run_lock.h"
#include "weft/comm/mesh.h"
#include "weft/comm/place.h"
#include "weft/comm/supervisor.h"

#include "apps/weft/commands.h"
#include "apps/weft/libweft.h"

namespace weft {
namespace {

/// Starts ranks that train, having made sure of what would fail on each of them.
int train_on(int64_t ranks, const Config& config) {
  const Mesh mesh(config.parallel, ranks);
  const std::string& run_dir = config.log.run_dir;
  if (run_is_locked(run_dir)) fail_because_locked(run_dir);
  return run_on_ranks(ranks, run_dir + "/logs");
}

}  // namespace

void add_train_command(CLI::App& app, int* status) {
  CLI::App* command = app.add_subcommand("train", "Train a model");
  const auto path = std::make_shared<std::string>();
  const auto overrides = std::make_shared<std::vector<std::string>>();
  command->add_option("CONFIG", *path, "The run's TOML file (keys: weft config --explain SECTION)")
      ->required();
  add_set_option(*command, overrides.get());
  const auto ranks = std::make_shared<int64_t>(1);
  CLI::Option* const rank_option =
      add_ranks_option(*command, ranks.get(), "Train on N processes of this machine, which share its cores");
  const auto profile = std::make_shared<std::string>();
  CLI::Option* const profiles =
      command
          ->add_option(
              "--profile", *profile,
              "Trace these steps (default: three soon after the start), as log.profile does: a table of "
              "the top ops, and trace.json for Perfetto")
          ->type_name("[FIRST-LAST]")
          ->expected(0, 1);
  command->footer(
      "Ctrl-C saves a checkpoint and ends the run; the same command continues it.\n"
      "Under mpirun or srun each process is a rank (see docs/many-ranks.md).\n"
      "Examples:\n"
      "  weft train configs/demo.toml\n"
      "  weft train configs/demo.toml --set model.dim=384 --set log.run_dir=runs/wider\n"
      "  weft train configs/demo.toml --ranks 2 --set parallel.zero=3\n"
      "  weft train configs/demo.toml --profile 20-22");
  command->callback([=] {
    if (rank_option->count() > 0) begin_own_job();
    if (profiles->count() > 0) overrides->push_back("log.profile=" + (profile->empty() ? "auto" : *profile));
    const bool is_first_rank = *ranks == 1 && find_place().rank == 0;  // one says it for all
    const Config config = load_resolved_config(*path, *overrides, /*warns=*/is_first_rank);
    check_for_training(config);
    *status =
        *ranks > 1 ? train_on(*ranks, config) : libweft_function<decltype(weft_train)>("weft_train")(config);
  });
}

}  // namespace weft
