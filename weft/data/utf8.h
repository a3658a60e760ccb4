// UTF-8 well-formedness (Unicode, table 3-7), one sequence at a time.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft {

/// Bytes (1 to 4) of the well-formed sequence at the front of `text`, or 0 if there is none; then
/// `*incomplete`, if asked for, says whether more bytes could still make it one.
inline size_t utf8_sequence(std::string_view text, bool* incomplete = nullptr) {
  if (incomplete) *incomplete = text.empty();
  if (text.empty()) return 0;
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (size_t at = 1; at < length; ++at) {
    if (at == text.size()) {
      if (incomplete) *incomplete = true;
      return 0;
    }
    // Only the second byte's range depends on the lead: no overlong forms, no surrogates, nothing past
    // U+10FFFF.
    const auto byte = static_cast<unsigned char>(text[at]);
    const unsigned low = at > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = at > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte < low || byte > high) return 0;
  }
  return length;
}

/// Length of the longest well-formed prefix of `text`.
inline size_t utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = utf8_sequence(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

}  // namespace weft
