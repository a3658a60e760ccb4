// A safetensors file from a fuzzer's input: the input itself or, if it begins with '{', a header without the
// length that goes before it, so that a mutation of the header need not guess the new length: the header ends
// at the first line break, the data follows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::fuzz {

inline std::string safetensors_file(std::string_view input) {
  if (!input.starts_with('{')) return std::string(input);
  const std::string_view header = input.substr(0, input.find('\n'));
  const std::string_view data = input.substr(std::min(input.size(), header.size() + 1));
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  return file.append(header).append(data);
}

}  // namespace weft::fuzz
