// `weft train`: trains a model as a config says.
#include <memory>

#include "apps/weft/commands.h"
#include "apps/weft/libweft.h"

namespace weft {

void add_train_command(CLI::App& app, int* status) {
  CLI::App* command = app.add_subcommand("train", "Train a model");
  const auto path = std::make_shared<std::string>();
  const auto overrides = std::make_shared<std::vector<std::string>>();
  command->add_option("CONFIG", *path, "The run's TOML file (keys: weft config --explain SECTION)")
      ->required();
  add_set_option(*command, overrides.get());
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
      "Examples:\n"
      "  weft train configs/demo.toml\n"
      "  weft train configs/demo.toml --set model.dim=384 --set log.run_dir=runs/wider\n"
      "  weft train configs/demo.toml --profile 20-22");
  command->callback([=] {
    if (profiles->count() > 0) overrides->push_back("log.profile=" + (profile->empty() ? "auto" : *profile));
    const Config config = load_resolved_config(*path, *overrides);
    check_for_training(config);
    *status = libweft_function<decltype(weft_train)>("weft_train")(config);
  });
}

}  // namespace weft
