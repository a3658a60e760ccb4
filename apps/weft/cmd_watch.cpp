// `weft watch`: a run on the terminal as it goes.
#include <memory>
#include <string>

#include "weft/report/watch.h"

#include "apps/weft/commands.h"

namespace weft {

void add_watch_command(CLI::App& app, int* status) {
  CLI::App* command = app.add_subcommand("watch", "Watch a run on the terminal as it goes");
  const auto run = std::make_shared<std::string>();
  const auto once = std::make_shared<bool>(false);
  command->add_option("RUN", *run, "The run directory (log.run_dir); it may not exist yet")->required();
  command->add_flag("--once", *once, "Show the run as it is now, and end");
  command->footer(
      "Follows the files that the run writes, so it may be started, and ended with Ctrl-C, at any time.\n"
      "In a pipe each update is a line.\n"
      "Examples:\n"
      "  weft watch runs/demo\n"
      "  weft watch runs/demo --once");
  command->callback([=] {
    watch_run(Env::system(), *run, *once);
    *status = 0;
  });
}

}  // namespace weft
