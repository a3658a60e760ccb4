// `weft mesh`: who is where, before anything runs.
#include <memory>

#include <fmt/format.h>

#include "weft/comm/mesh.h"

#include "apps/weft/commands.h"

namespace weft {

void add_mesh_command(CLI::App& app, int* status) {
  CLI::App* command = app.add_subcommand("mesh", "Show which rank is where, and which groups exist");
  const auto path = std::make_shared<std::string>();
  const auto overrides = std::make_shared<std::vector<std::string>>();
  const auto ranks = std::make_shared<int64_t>(1);
  command->add_option("CONFIG", *path, "The run's TOML file")->required();
  add_ranks_option(*command, ranks.get(), "Ranks of the job")->required();
  add_set_option(*command, overrides.get());
  command->footer(
      "Nothing is started: any number of ranks can be looked at anywhere.\n"
      "Example:\n"
      "  weft mesh configs/demo.toml --ranks 16 --set parallel.dp_replicate=2");
  command->callback([=] {
    const Config config = load_resolved_config(*path, *overrides);
    fmt::print("{}", describe(Mesh(config.parallel, *ranks)));
    *status = 0;
  });
}

}  // namespace weft
