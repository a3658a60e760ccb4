// `weft config --explain` and docs/config.md, both from the schema.
#include "weft/base/config_schema.h"
#include "weft/base/error.h"
#include "weft/base/nearest.h"

namespace weft {
namespace {

std::string explain_key(const Key& key) {
  Config defaults;
  const Value value = key.member(defaults);
  std::string text = fmt::format("{}\n  {}\n  type     {}\n  allowed  {}\n  default  {}\n", key.name,
                                 key.help, type_name(value), allowed_text(key), toml_text(value));
  if (!key.unit.empty()) text += fmt::format("  unit     {}\n", key.unit);
  if (!key.when.empty()) text += fmt::format("  matters  when {}\n", key.when);
  if (is_shape_key(key)) text += "  matters  when model.from_hf is empty\n";
  return text;
}

std::string escaped_for_table(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string table_row(const Key& key) {
  Config defaults;
  const Value value = key.member(defaults);
  std::string help = key.help;
  if (!key.when.empty()) help += fmt::format(" Only when {}.", key.when);
  return fmt::format("| `{}` | {} | `{}` | {} | {} | {} |\n", key.short_name(), type_name(value),
                     toml_text(value), escaped_for_table(allowed_text(key)), key.unit,
                     escaped_for_table(help));
}

}  // namespace

std::string explain(const std::string& name) {
  std::string text;
  std::vector<std::string> names;
  for (const auto& section : config_sections()) names.push_back(section.name);
  for (const auto& key : config_keys()) {
    // "model.dim", "dim" wherever it stands, or the whole of "model".
    if (key.name == name || key.short_name() == name || key.section() == name) {
      text += (text.empty() ? "" : "\n") + explain_key(key);
    }
    names.push_back(key.name);
    names.push_back(key.short_name());
  }
  if (!text.empty()) return text;
  const std::string near = nearest(name, names);
  if (!near.empty()) fail("no config key or section {}; did you mean {}?", name, near);
  names.resize(config_sections().size());
  fail("no config key or section {}; the sections are {}", name, fmt::join(names, ", "));
}

std::string config_reference() {
  std::string text =
      "# Config reference\n\n"
      "<!-- Made by `weft config --docs`; the source is weft/base/config_schema.cpp. -->\n\n"
      "One TOML file describes a run: `weft train run.toml`. A key can be set on the command line too, as "
      "in\n"
      "`weft train run.toml --set model.dim=512`; the last one wins. `weft config --print run.toml` shows "
      "every\n"
      "key with its final value and `weft config --explain KEY` explains one. An unknown key, a wrong type "
      "or an\n"
      "impossible value is an error, and all are reported together; a setting without effect is a warning.\n"
      "Integers may be written as `1e6`, and a list of one as its only value.\n";
  for (const auto& section : config_sections()) {
    text += fmt::format("\n## [{}]\n\n{}\n", section.name, section.help);
    if (section.name == "model") {
      text +=
          "With `from_hf` the folder decides the shape: of the other keys only `architecture`, `plugins`,\n"
          "`init_std`, `dropout` and `attention_dropout` matter then.\n";
    }
    text += "\n| key | type | default | allowed | unit | meaning |\n|---|---|---|---|---|---|\n";
    for (const auto& key : config_keys()) {
      if (key.section() == section.name) text += table_row(key);
    }
  }
  return text;
}

}  // namespace weft
