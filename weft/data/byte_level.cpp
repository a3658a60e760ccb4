#include "weft/data/byte_level.h"

#include "weft/data/utf8.h"

namespace weft {
namespace {

bool stands_for_itself(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

struct Alphabet {
  std::array<uint8_t, 256> order{};
  std::array<uint32_t, 256> code_point{};  // of a byte
  std::array<int, 256 + 68> byte_of{};     // of a code point; -1: none

  Alphabet() {
    byte_of.fill(-1);
    uint32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      code_point[byte] = stands_for_itself(byte) ? uint32_t(byte) : next++;
      byte_of[code_point[byte]] = byte;
    }
    size_t position = 0;
    for (int byte : byte_of)
      if (byte >= 0) order[position++] = uint8_t(byte);
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

const std::array<uint8_t, 256>& byte_level_order() { return alphabet().order; }

std::string to_byte_level(std::string_view bytes) {
  std::string characters;
  characters.reserve(bytes.size() * 2);
  for (char byte : bytes) {
    const uint32_t point = alphabet().code_point[uint8_t(byte)];
    if (point < 0x80) {
      characters += char(point);
    } else {
      characters += char(0xC0 | point >> 6);
      characters += char(0x80 | (point & 0x3F));
    }
  }
  return characters;
}

std::optional<std::string> from_byte_level(std::string_view characters) {
  std::string bytes;
  while (!characters.empty()) {
    const size_t length = utf8_sequence(characters);
    if (length == 0 || length > 2) return std::nullopt;
    uint32_t point = uint8_t(characters[0]);
    if (length == 2) point = (point & 0x1F) << 6 | (uint8_t(characters[1]) & 0x3F);
    if (point >= alphabet().byte_of.size() || alphabet().byte_of[point] < 0) return std::nullopt;
    bytes += char(alphabet().byte_of[point]);
    characters.remove_prefix(length);
  }
  return bytes;
}

}  // namespace weft
