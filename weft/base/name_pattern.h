// Rules that pick parameters by name: regular expressions (Perl's, by PCRE2) that find a match anywhere in
// it.
#pragma once

#include <memory>
#include <string>

struct pcre2_real_code_8;

namespace weft {

class NamePattern {
 public:
  /// Throws Error if it is no regular expression, or an empty one.
  explicit NamePattern(const std::string& text);
  /// Throws Error if the expression backtracks too much to tell.
  bool matches(const std::string& name) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::shared_ptr<pcre2_real_code_8> code_;
};

/// One of optim.lr_multipliers.
struct LrMultiplier {
  NamePattern pattern;
  double factor;
};

/// "REGEX = NUMBER", split at the last "=". Throws Error saying what was expected.
LrMultiplier parse_lr_multiplier(const std::string& text);

}  // namespace weft
