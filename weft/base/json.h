// Reading JSON that anyone may have written.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"

namespace weft {

/// Far more than any file of weft's needs; what walks a value recurses, so deeper ones would overflow the
/// stack.
inline constexpr int kMaxJsonDepth = 100;

/// Throws Error, naming `where`, if `text` is not JSON, holds a number that no double can, or nests too
/// deeply.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& where) {
  const auto check = [&](int depth, typename Json::parse_event_t, const Json&) {
    if (depth >= kMaxJsonDepth) fail("{}: JSON nested more than {} deep", where, kMaxJsonDepth);
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const typename Json::exception& error) {
    fail("{}: not valid JSON: {}", where, std::string(error.what()).substr(0, 300));
  }
}

}  // namespace weft
