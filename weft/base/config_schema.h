// The schema of the config: one row per key. Private to base: the parser, the checks and the docs read it.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "weft/base/config.h"

namespace weft {

using Value = std::variant<std::string*, int64_t*, double*, bool*, std::vector<std::string>*,
                           std::vector<bool>*, std::vector<double>*>;

/// What a value may be: an interval for numbers, a list of words for text (empty: any text).
struct Allowed {
  double low = 0;
  double high = 0;
  bool low_open = false;
  bool high_open = false;
  std::vector<std::string> words;
};

struct Key {
  std::string name;  // "model.dim"
  Value (*member)(Config&);
  Allowed allowed;
  std::string unit;  // empty: none
  std::string help;
  std::string when = {};  // the condition under which the key matters; empty: always
  bool (*matters)(const Config&) = [](const Config&) { return true; };

  std::string section() const { return name.substr(0, name.find('.')); }
  std::string short_name() const { return name.substr(name.find('.') + 1); }
};

struct Section {
  std::string name;
  std::string help;
};

const std::vector<Section>& config_sections();
const std::vector<Key>& config_keys();         // in section order
const Key* find_key(const std::string& name);  // nullptr: none

/// Does a [model] key describe the shape, which model.from_hf replaces?
bool is_shape_key(const Key& key);

/// "" if the key matters in this config, else why not.
std::string no_effect(const Key& key, const Config& config);

/// The value as TOML: quoted text, the shortest digits that read back as the same double.
std::string toml_text(const std::string& text);
std::string toml_text(double number);
std::string toml_text(const Value& value);

std::string type_name(const Value& value);  // "integer"
std::string allowed_text(const Key& key);   // "an integer in [1, 10]"

/// "" if the value is allowed, else what is expected.
std::string violation(const Key& key, const Value& value);

/// What is wrong with a config as a whole: the keys involved, the first of them to be named in the report.
struct Problem {
  std::vector<std::string> keys;
  std::string text;
};
std::vector<Problem> model_problems(const ModelConfig& model);
std::vector<Problem> config_problems(const Config& config);  // the other sections

}  // namespace weft
