// The byte-level alphabet of GPT-2: every byte is written as one printable character, so that tokens of
// arbitrary bytes can be keys of a JSON file. Bytes 33-126, 161-172 and 174-255 stand for themselves (as
// code points), the other 68, in order, for U+0100, U+0101, …
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

/// The 256 bytes in the order of their characters' code points: token id i of a trained tokenizer is byte i
/// here.
const std::array<uint8_t, 256>& byte_level_order();

/// Bytes to characters (UTF-8): " the" -> "Ġthe".
std::string to_byte_level(std::string_view bytes);

/// Characters back to bytes; nothing if some character is not of the alphabet.
std::optional<std::string> from_byte_level(std::string_view characters);

}  // namespace weft
