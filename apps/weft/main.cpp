// weft: the command line. It answers help and config questions by itself, within milliseconds, and loads
// libweft for what computes. Exit status: 0 done, 1 an error that the user can mend, 2 wrong usage, 3 an
// error of ours.
#include <algorithm>
#include <cstdio>
#include <exception>

#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/nearest.h"
#include "weft/comm/supervised.h"

#include "apps/weft/commands.h"

namespace weft {
namespace {

constexpr int kUsageError = 2, kInternalError = 3;

void add_commands(CLI::App& app, int* status) {
  add_train_command(app, status);
  add_watch_command(app, status);
  add_report_command(app, status);
  add_generate_command(app, status);
  add_export_command(app, status);
  add_tokenizer_command(app, status);
  add_data_command(app, status);
  add_config_command(app, status);
  add_logits_command(app, status);
  add_parity_command(app, status);
  add_mesh_command(app, status);
  add_comm_command(app, status);
  add_bench_command(app, status);
  add_info_command(app, status);
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

/// "" if `word` is a command of `app`, else the complaint with the nearest one.
std::string unknown_command(const CLI::App& app, const std::string& word) {
  const auto names = command_names(app);
  if (std::find(names.begin(), names.end(), word) != names.end()) return "";
  const std::string near = nearest(word, names);
  if (!near.empty()) return fmt::format("there is no command \"{}\"; did you mean \"{}\"?", word, near);
  return fmt::format("there is no command \"{}\"; the commands are {}", word, fmt::join(names, ", "));
}

/// The command that the words of the command line lead to: its help is what a usage error should point at.
std::string command_line_of(const CLI::App& app) {
  std::string line = "weft";
  for (const CLI::App* at = &app; at != nullptr;) {
    const auto parsed = at->get_subcommands();
    at = parsed.empty() ? nullptr : parsed.front();
    if (at != nullptr) line += " " + at->get_name();
  }
  return line;
}

int usage_error(const std::string& message, const std::string& command) {
  fmt::print(stderr, "weft: error: {}\nSee `{} --help`.\n", message, command);
  return kUsageError;
}

int run(int argc, char** argv) {
  CLI::App app("Weft trains large language models.", "weft");
  app.set_version_flag("--version", "weft " WEFT_VERSION);
  app.set_help_flag("-h,--help", "Show this help");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  weft tokenizer train --input speeches/ --vocab-size 4096 --output tokenizer.json\n"
      "  weft data build --input speeches/ --tokenizer tokenizer.json --output data/speeches\n"
      "  weft train configs/demo.toml\n"
      "  weft watch runs/demo\n"
      "  weft report runs/demo\n"
      "  weft generate runs/demo --prompt \"My fellow citizens\"\n"
      "`weft COMMAND --help` tells more of a command.");
  int status = kInternalError;  // each command's callback sets it
  add_commands(app, &status);
  if (argc == 1) {
    fmt::print(stderr, "{}", app.help());
    return kUsageError;
  }
  if (argv[1][0] != '-') {
    if (const std::string complaint = unknown_command(app, argv[1]); !complaint.empty()) {
      return usage_error(complaint, "weft");
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what(), command_line_of(app));
  }
  return status;
}

int run_and_report(int argc, char** argv) {
  try {
    join_supervisor();
    return run(argc, argv);
  } catch (const Error& error) {
    return report_failure(Failure::error, error.what());
  } catch (const std::exception& error) {
    return report_failure(Failure::internal, error.what());
  }
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const int status = weft::run_and_report(argc, argv);
  if (status == 0) return 0;
  std::fflush(nullptr);
  _exit(status);  // at once: what ends a library may wait for other ranks
}
