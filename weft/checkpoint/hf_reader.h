// A JSON object of config.json, read key by key; each refusal names file, key, value and what is supported.
// Private to the readers of config.json.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"

namespace weft {

using Json = nlohmann::json;

/// null counts as absent.
class HfReader {
 public:
  HfReader(std::string path, const Json& object) : path_(std::move(path)), object_(object) {}

  bool contains(const char* key) const { return object_.contains(key); }  // null, too
  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  const Json& at(const char* key) const { return object_.at(key); }

  [[noreturn]] void refuse(const char* key, const std::string& expected) const {
    std::string value = "missing";
    if (has(key)) {
      value = at(key).is_array() ? "[...]" : at(key).is_object() ? "{...}" : shown(at(key));
    }
    fail("{}: {} {} {}: {}", path_, key, has(key) ? "=" : "is", value, expected);
  }

  int64_t integer(const char* key, std::optional<int64_t> fallback = std::nullopt) const {
    if (!has(key) && fallback) return *fallback;
    const double value = has(key) && at(key).is_number() ? at(key).get<double>() : std::nan("");
    if (!(std::abs(value) <= 9e15 && value == std::floor(value))) refuse(key, "expected an integer");
    return static_cast<int64_t>(value);
  }

  double number(const char* key, std::optional<double> fallback = std::nullopt) const {
    if (!has(key) && fallback) return *fallback;
    if (!has(key) || !at(key).is_number()) refuse(key, "expected a number");
    return at(key).get<double>();
  }

  bool flag(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!at(key).is_boolean()) refuse(key, "expected true or false");
    return at(key).get<bool>();
  }

  std::string text(const char* key, const std::string& fallback) const {
    if (!has(key)) return fallback;
    if (!at(key).is_string()) refuse(key, "expected text");
    return at(key).get<std::string>();
  }

  /// The object under `key`, whose own keys are reported as "file: key".
  HfReader object(const char* key) const {
    if (!at(key).is_object()) refuse(key, "expected an object");
    return {path_ + ": " + key, at(key)};
  }

  const Json::array_t& list(const char* key, int64_t at_least) const {
    if (!at(key).is_array() || static_cast<int64_t>(at(key).size()) < at_least) {
      refuse(key, fmt::format("expected a list of {}, one item a layer", at_least));
    }
    return at(key).get_ref<const Json::array_t&>();
  }

  /// `key`, or `standard` where only that is there.
  const char* either(const char* key, const char* standard) const {
    return !has(key) && has(standard) ? standard : key;
  }

  const std::string& path() const { return path_; }

 private:
  static std::string shown(const Json& scalar) {
    const std::string text = scalar.dump(-1, ' ', true, Json::error_handler_t::replace);
    return text.size() > 60 ? text.substr(0, 60) + "..." : text;
  }

  std::string path_;
  const Json& object_;
};

}  // namespace weft
