// Reads a config: TOML file, then overrides, then the checks of the whole; one report for all problems.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include <toml++/toml.h>

#include "weft/base/config.h"
#include "weft/base/config_schema.h"
#include "weft/base/error.h"
#include "weft/base/nearest.h"
#include "weft/base/text.h"

namespace weft {
namespace {

/// A TOML value as the reports show it: on one line, cut at 60 characters.
std::string shown(const toml::node& node) {
  std::string text;
  if (const auto* string = node.as_string()) {
    text = toml_text(string->get());
  } else if (const auto* number = node.as_floating_point()) {
    text = toml_text(number->get());
  } else if (const auto* array = node.as_array()) {
    for (const auto& item : *array) {
      if (text.size() > 60) break;
      text += (text.empty() ? "" : ", ") + shown(item);
    }
    text = "[" + text + "]";
  } else if (node.is_table()) {
    text = "{...}";
  } else {
    std::ostringstream stream;
    node.visit([&](const auto& value) {
      if constexpr (toml::is_value<decltype(value)>) stream << std::boolalpha << value.get();
    });
    text = stream.str();
  }
  if (text.size() <= 60) return text;
  size_t cut = 60;
  while ((text[cut] & 0xC0) == 0x80) --cut;  // not inside a UTF-8 character
  return text.substr(0, cut) + "...";
}

bool read_value(const toml::node& node, std::string* out) {
  if (!node.is_string()) return false;
  *out = node.as_string()->get();
  return true;
}

bool read_value(const toml::node& node, double* out) {
  if (const auto* integer = node.as_integer()) {
    *out = static_cast<double>(integer->get());
  } else if (const auto* number = node.as_floating_point();
             number != nullptr && std::isfinite(number->get())) {
    *out = number->get();
  } else {
    return false;
  }
  return true;
}

bool read_value(const toml::node& node, int64_t* out) {
  if (const auto* integer = node.as_integer()) {
    *out = integer->get();
    return true;
  }
  double number = 0;  // 1e6 is a float in TOML
  if (!read_value(node, &number) || number != std::floor(number) || std::abs(number) > 9e15) return false;
  *out = static_cast<int64_t>(number);
  return true;
}

bool read_value(const toml::node& node, bool* out) {
  if (!node.is_boolean()) return false;
  *out = node.as_boolean()->get();
  return true;
}

/// A list, or a single value standing for a list of one.
template <class Item>
bool read_value(const toml::node& node, std::vector<Item>* out) {
  const auto add = [&](const toml::node& item_node) {
    Item item{};
    if (!read_value(item_node, &item)) return false;
    out->push_back(item);
    return true;
  };
  out->clear();
  const auto* array = node.as_array();
  return array == nullptr ? add(node) : std::all_of(array->begin(), array->end(), add);
}

/// toml++ recurses over the parts of a dotted key, however many: only with few dots is the stack safe.
constexpr std::ptrdiff_t kMaxDots = 10000;

bool has_too_many_dots(const std::string& text) {
  return std::count(text.begin(), text.end(), '.') > kMaxDots;
}

/// The value of an override as a TOML document `v = ...`; words may come without their quotes.
std::optional<toml::table> parse_override(const Value& target, const std::string& text) {
  const auto parse = [](const std::string& value) -> std::optional<toml::table> {
    if (has_too_many_dots(value)) return std::nullopt;
    try {
      auto table = toml::parse("v = " + value);
      if (table.size() == 1) return table;  // a line break could smuggle in more
    } catch (const toml::parse_error&) {
    }
    return std::nullopt;
  };
  auto parsed = parse(text);
  const bool is_list = std::holds_alternative<std::vector<std::string>*>(target);
  if (!is_list && !std::holds_alternative<std::string*>(target)) return parsed;
  if (parsed && (parsed->get("v")->is_string() || (is_list && parsed->get("v")->is_array()))) return parsed;
  if (!is_list) return parse(toml_text(text));

  std::string words = text;
  if (words.starts_with('[') && words.ends_with(']')) words = words.substr(1, words.size() - 2);
  if (words.size() == text.size()) return parse(text.empty() ? "[]" : toml_text(text));
  std::string list;
  std::stringstream stream(words);
  for (std::string word; std::getline(stream, word, ',');) list += toml_text(trimmed(word)) + ",";
  return parse("[" + list + "]");
}

class Loader {
 public:
  void read_file(Env& env, const std::string& path);
  void override_with(const std::string& text);
  Config finish(std::vector<std::string>* warnings);

 private:
  struct Place {
    int64_t line = std::numeric_limits<int64_t>::max();  // overrides come after the lines of the file
    std::string where;                                   // "demo.toml:3" or "--set model.dim=8"
    bool shows_value = false;                            // the override repeats key and value already
  };

  void read_section(const std::string& section, const toml::table& table);
  void assign(const std::string& name, const toml::node& node, const Place& place);
  void report(const Place& place, const std::string& text) {
    problems_.emplace_back(place.line, place.where + ": " + text);
  }
  Place at(const toml::source_region& source) const {
    const auto line = static_cast<int64_t>(source.begin.line);
    return {line, fmt::format("{}:{}", path_, line), false};
  }
  std::string about(const Place& place, const std::string& name, const std::string& value) const {
    return place.shows_value ? "" : fmt::format("{} = {}: ", name, value);
  }
  void check_whole();
  void throw_problems();

  std::string path_;
  Config config_;
  std::map<std::string, Place> places_;  // of the keys that were set
  std::set<std::string> bad_;            // keys whose value did not parse
  std::vector<std::pair<int64_t, std::string>> problems_;
};

std::vector<std::string> short_names(const std::string& section) {
  std::vector<std::string> names;
  for (const auto& key : config_keys()) {
    if (key.section() == section) names.push_back(key.short_name());
  }
  return names;
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const auto& section : config_sections()) names.push_back(section.name);
  return names;
}

/// " (did you mean ...?)": the same name in another section, else the nearest in this one; "" if there is
/// none.
std::string key_hint(const std::string& section, const std::string& short_name) {
  std::string hint = nearest(short_name, short_names(section));
  for (const auto& key : config_keys()) {
    if (key.short_name() == short_name) hint = key.name;
  }
  return hint.empty() ? "" : fmt::format(" (did you mean {}?)", hint);
}

std::string unknown_section(const std::string& section) {
  const std::string near = nearest(section, section_names());
  if (!near.empty()) return fmt::format("unknown section [{}] (did you mean [{}]?)", section, near);
  return fmt::format("unknown section [{}]; the sections are {}", section, fmt::join(section_names(), ", "));
}

void Loader::read_file(Env& env, const std::string& path) {
  path_ = path;
  const std::string text = env.read(path);
  if (trimmed(text).empty()) {
    fail("{}: the file is empty; `weft config --docs` lists what can stand in it", path);
  }
  if (has_too_many_dots(text)) fail("{}: more than {} dots: no config needs so many", path, kMaxDots);
  toml::table document;
  try {
    document = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    fail("{}:{}: not valid TOML: {}", path, error.source().begin.line, error.description());
  }
  const auto sections = section_names();
  for (const auto& [key, node] : document) {
    const std::string name(key.str());
    const bool known = std::find(sections.begin(), sections.end(), name) != sections.end();
    if (const auto* table = node.as_table()) {
      known ? read_section(name, *table) : report(at(key.source()), unknown_section(name));
    } else if (known) {
      report(at(key.source()), fmt::format("{} = {}: expected a section [{}]", name, shown(node), name));
    } else {
      report(at(key.source()), fmt::format("unknown key {}{}; keys stand in a section, such as [model]", name,
                                           key_hint("", name)));
    }
  }
}

void Loader::read_section(const std::string& section, const toml::table& table) {
  for (const auto& [key, node] : table) {
    const std::string short_name(key.str()), name = section + "." + short_name;
    if (find_key(name) == nullptr) {
      report(at(key.source()), fmt::format("unknown key {}{}", name, key_hint(section, short_name)));
    } else {
      assign(name, node, at(key.source()));
    }
  }
}

void Loader::assign(const std::string& name, const toml::node& node, const Place& place) {
  const Key& key = *find_key(name);
  Config trial = config_;  // a bad value must not reach the checks of the whole
  const Value target = key.member(trial);
  const bool right_type = std::visit([&](auto* member) { return read_value(node, member); }, target);
  const std::string problem = right_type ? violation(key, target) : "expected " + allowed_text(key);
  places_[name] = place;
  if (problem.empty()) {
    config_ = std::move(trial);
    bad_.erase(name);
    return;
  }
  bad_.insert(name);
  std::string hint;
  if (const auto* word = node.as_string(); word != nullptr && !key.allowed.words.empty()) {
    hint = nearest(word->get(), key.allowed.words);
    if (!hint.empty()) hint = fmt::format(" (did you mean \"{}\"?)", hint);
  }
  report(place, about(place, name, shown(node)) + problem + hint);
}

void Loader::override_with(const std::string& text) {
  const Place place{.where = "--set " + text, .shows_value = true};
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    report(place, "expected section.key=value, such as model.dim=512");
    return;
  }
  const std::string name = trimmed(text.substr(0, equals));
  const Key* key = find_key(name);
  if (key == nullptr) {
    const size_t dot = name.find('.');
    const std::string section = dot == std::string::npos ? "" : name.substr(0, dot);
    const auto sections = section_names();
    const bool known =
        dot == std::string::npos || std::find(sections.begin(), sections.end(), section) != sections.end();
    report(place, known ? fmt::format("unknown key {}{}", name, key_hint(section, name.substr(dot + 1)))
                        : unknown_section(section));
    return;
  }
  const auto parsed = parse_override(key->member(config_), trimmed(text.substr(equals + 1)));
  if (parsed) {
    assign(name, *parsed->get("v"), place);
  } else {
    bad_.insert(name);
    places_[name] = place;
    report(place, "expected " + allowed_text(*key));
  }
}

void Loader::check_whole() {
  std::vector<Problem> problems = config_problems(config_);
  if (config_.model.from_hf.empty()) {
    for (auto& problem : model_problems(config_.model)) problems.push_back(std::move(problem));
  }
  for (const auto& problem : problems) {
    const auto is_bad = [&](const std::string& name) { return bad_.count(name) > 0; };
    if (std::any_of(problem.keys.begin(), problem.keys.end(), is_bad)) continue;
    const auto set = std::find_if(problem.keys.begin(), problem.keys.end(),
                                  [&](const std::string& name) { return places_.count(name) > 0; });
    Place place = set == problem.keys.end() ? Place{.where = path_} : places_[*set];
    if (set != problem.keys.begin()) place.shows_value = false;
    const std::string& name = problem.keys.front();
    report(place, about(place, name, toml_text(find_key(name)->member(config_))) + problem.text);
  }
}

void Loader::throw_problems() {
  std::stable_sort(problems_.begin(), problems_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (problems_.size() == 1) throw Error(problems_[0].second);
  std::string text = fmt::format("{} problems in the config:", problems_.size());
  for (const auto& problem : problems_) text += "\n  " + problem.second;
  throw Error(text);
}

Config Loader::finish(std::vector<std::string>* warnings) {
  check_whole();
  if (!problems_.empty()) throw_problems();
  Config defaults;
  std::vector<std::pair<int64_t, std::string>> found;
  for (const auto& [name, place] : places_) {
    const Key& key = *find_key(name);
    const std::string value = toml_text(key.member(config_)), reason = no_effect(key, config_);
    if (!reason.empty() && value != toml_text(key.member(defaults))) {
      found.emplace_back(place.line, place.where + ": " + about(place, name, value) + reason);
    }
  }
  if (const auto& train = config_.train; train.micro_batch > train.global_batch) {
    found.emplace_back(
        0, fmt::format("{}: train.micro_batch = {} is more than global_batch = {}, which is all it will hold",
                       path_, train.micro_batch, train.global_batch));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& warning : found) warnings->push_back(std::move(warning.second));
  return config_;
}

}  // namespace

Config load_config(const std::string& path, const std::vector<std::string>& overrides,
                   std::vector<std::string>* warnings, Env& env) {
  Loader loader;
  if (!path.empty()) loader.read_file(env, path);
  for (const auto& text : overrides) loader.override_with(text);
  return loader.finish(warnings);
}

}  // namespace weft
