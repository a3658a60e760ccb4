#include "weft/base/name_pattern.h"

#include <charconv>

#include "weft/base/error.h"
#include "weft/base/text.h"

namespace weft {
namespace {

std::regex compile(const std::string& text) {
  if (text.size() > 1000) fail("longer than 1000 characters");  // std::regex recurses over its pattern
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
