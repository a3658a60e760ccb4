#include "weft/base/name_pattern.h"

#include <algorithm>
#include <charconv>

#include "weft/base/error.h"
#include "weft/base/text.h"

namespace weft {
namespace {

/// std::regex does not look whether the numbers in \1 and {1,2} fit an integer.
bool has_long_number(const std::string& text) {
  int digits = 0;
  return std::any_of(text.begin(), text.end(), [&](char c) {
    digits = '0' <= c && c <= '9' ? digits + 1 : 0;
    return digits > 9;
  });
}

std::regex compile(const std::string& text) {
  if (text.size() > 1000) fail("longer than 1000 characters");  // std::regex recurses over its pattern
  if (has_long_number(text)) fail("a number of more than 9 digits");
  try {
    return std::regex(text);
  } catch (const std::regex_error& error) {
    fail("not a regular expression: {}", error.what());
  }
}

}  // namespace

NamePattern::NamePattern(const std::string& text) : text_(text), regex_(compile(text)) {}

LrMultiplier parse_lr_multiplier(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos) fail("expected \"REGEX = NUMBER\"");
  const std::string number = trimmed(text.substr(equals + 1));
  double factor = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), factor);
  if (error != std::errc() || end != number.data() + number.size() || !(factor >= 0 && factor <= 1e6))
    fail("expected \"REGEX = NUMBER\" with a number in [0, 1e+06], not \"{}\"", number);
  return {NamePattern(trimmed(text.substr(0, equals))), factor};
}

}  // namespace weft
