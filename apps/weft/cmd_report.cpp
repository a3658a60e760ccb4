// `weft report`: what runs did, as one page.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/report/report.h"

#include "apps/weft/commands.h"

namespace weft {

void add_report_command(CLI::App& app, int* status) {
  CLI::App* command = app.add_subcommand("report", "Make a page of what one or several runs did");
  const auto runs = std::make_shared<std::vector<std::string>>();
  const auto output = std::make_shared<std::string>();
  command->add_option("RUN", *runs, "Run directories (log.run_dir); several are laid over each other")
      ->required();
  command->add_option("--output", *output,
                      "The page to write; otherwise report.html in the run directory, or for several runs in "
                      "the current one");
  command->footer(
      "The page opens offline, in any browser; a run that still trains may be reported on too.\n"
      "Examples:\n"
      "  weft report runs/demo\n"
      "  weft report runs/narrow runs/wide runs/deep --output shapes.html");
  command->callback([=] {
    std::string page = *output;
    if (page.empty()) page = runs->size() == 1 ? runs->front() + "/report.html" : "report.html";
    // The page is renamed into place, which would replace a device or a link itself.
    namespace fs = std::filesystem;
    if (fs::exists(page) && !fs::is_regular_file(page)) fail("--output {}: not a regular file", page);
    write_report(Env::system(), *runs, fs::is_symlink(page) ? fs::canonical(page).string() : page);
    fmt::print("wrote {}\n", page);
    *status = 0;
  });
}

}  // namespace weft
