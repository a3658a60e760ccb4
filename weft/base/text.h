// Small helpers on text.
#pragma once

#include <string>

namespace weft {

/// Without white space at both ends.
inline std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

}  // namespace weft
