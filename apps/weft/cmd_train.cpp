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
  command->footer(
      "Ctrl-C saves a checkpoint and ends the run; the same command continues it.\n"
      "Examples:\n"
      "  weft train configs/demo.toml\n"
      "  weft train configs/demo.toml --set model.dim=384 --set log.run_dir=runs/wider");
  command->callback([=] {
    const Config config = load_resolved_config(*path, *overrides);
    check_for_training(config);
    *status = libweft_function<decltype(weft_train)>("weft_train")(config);
  });
}

}  // namespace weft
