// Rules that pick parameters by name: regular expressions (ECMAScript) that find a match anywhere in it.
#pragma once

#include <regex>
#include <string>

namespace weft {

class NamePattern {
 public:
  /// Throws Error if it is no regular expression.
  explicit NamePattern(const std::string& text);
  bool matches(const std::string& name) const { return std::regex_search(name, regex_); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::regex regex_;
};

/// One of optim.lr_multipliers.
struct LrMultiplier {
  NamePattern pattern;
  double factor;
};

/// "REGEX = NUMBER", split at the last "=". Throws Error saying what was expected.
LrMultiplier parse_lr_multiplier(const std::string& text);

}  // namespace weft
