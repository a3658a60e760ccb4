// `weft comm`: what the ranks of a run communicate.
#include <memory>
#include <string>

#include <fmt/format.h>

#include "weft/comm/recordings.h"

#include "apps/weft/commands.h"

namespace weft {

void add_comm_command(CLI::App& app, int* status) {
  CLI::App* group = app.add_subcommand("comm", "Look into the communication of a run's ranks");
  group->require_subcommand(1);
  CLI::App* command = group->add_subcommand("compare", "Say which rank is behind, and who waits for whom");
  const auto dir = std::make_shared<std::string>();
  command->add_option("DIR", *dir, "A run directory, or one with the files rank-00000.ring, …")->required();
  command->footer(
      "Each rank of a run writes down its last operations, in files that outlast it however it ends: "
      "compare\n"
      "them while a run hangs, or afterwards. Files of other machines can be copied into one directory.\n"
      "Example:\n  weft comm compare runs/demo");
  command->callback([=] {
    fmt::print("{}", compare_recordings(read_recordings(Env::system(), *dir)));
    *status = 0;
  });
}

}  // namespace weft
