#define PCRE2_CODE_UNIT_WIDTH 8
#include "weft/base/name_pattern.h"

#include <charconv>

#include <pcre2.h>

#include "weft/base/error.h"
#include "weft/base/text.h"

namespace weft {
namespace {

constexpr uint32_t kMatchLimit = 1'000'000;  // steps of the matcher: about 10 ms

PCRE2_SPTR bytes(const std::string& text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

NamePattern::NamePattern(const std::string& text) : text_(text) {
  if (text.empty()) fail("an empty regular expression; \".\" matches every name");
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(bytes(text), text.size(), 0, &error, &offset, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof message);
    fail("not a regular expression: {} (at character {})", reinterpret_cast<const char*>(message),
         offset + 1);
  }
  code_ = {code, pcre2_code_free};
}

bool NamePattern::matches(const std::string& name) const {
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(code_.get(), nullptr), pcre2_match_data_free);
  pcre2_set_match_limit(context.get(), kMatchLimit);
  const int found = pcre2_match(code_.get(), bytes(name), name.size(), 0, 0, match.get(), context.get());
  if (found < 0 && found != PCRE2_ERROR_NOMATCH)
    fail("the regular expression \"{}\" backtracks too much on {}: make it simpler", text_, name);
  return found >= 0;
}

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
