// `weft config`: explains keys and shows what a config amounts to.
#include <memory>

#include <fmt/format.h>

#include "weft/checkpoint/hf_config.h"

#include "apps/weft/commands.h"

namespace weft {

void add_set_option(CLI::App& command, std::vector<std::string>* overrides) {
  command.add_option("--set", *overrides, "Override a key of the config (repeatable)")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
}

CLI::Option* add_ranks_option(CLI::App& command, int64_t* ranks, const std::string& help) {
  return command.add_option("--ranks", *ranks, help)
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
}

Config load_config_and_warn(const std::string& path, const std::vector<std::string>& overrides, bool warns) {
  std::vector<std::string> warnings;
  Config config = load_config(path, overrides, &warnings);
  for (const auto& warning : warnings)
    if (warns) fmt::print(stderr, "weft: warning: {}\n", warning);
  return config;
}

Config load_resolved_config(const std::string& path, const std::vector<std::string>& overrides, bool warns) {
  Config config = load_config_and_warn(path, overrides, warns);
  apply_from_hf(&config);
  resolve(&config);
  if (config.model.architecture == "decoder") check_tensor_parallel(config.model, config.parallel.tp);
  return config;
}

void add_config_command(CLI::App& app, int* status) {
  CLI::App* command = app.add_subcommand("config", "Explain config keys, check and show a config");
  const auto key = std::make_shared<std::string>();
  const auto path = std::make_shared<std::string>();
  const auto overrides = std::make_shared<std::vector<std::string>>();
  auto* const what = command->add_option_group("one of");
  what->add_option("--explain", *key, "Explain a key, or every key of a section")->type_name("KEY");
  auto* const print = what->add_option("--print", *path, "Check a config and show every key's final value");
  print->type_name("FILE");
  auto* const docs =
      what->add_flag("--docs")->description("Print the reference of all keys (docs/config.md)");
  what->require_option(1);
  add_set_option(*command, overrides.get());
  command->get_option("--set")->needs(print);
  command->footer(
      "Examples:\n"
      "  weft config --explain optim.schedule\n"
      "  weft config --explain model\n"
      "  weft config --print configs/demo.toml --set model.dim=384");
  command->callback([=] {
    if (docs->count() > 0) {
      fmt::print("{}", config_reference());
    } else if (print->count() > 0) {
      fmt::print("{}", to_toml(load_resolved_config(*path, *overrides)));
    } else {
      fmt::print("{}", explain(*key));
    }
    *status = 0;
  });
}

}  // namespace weft
