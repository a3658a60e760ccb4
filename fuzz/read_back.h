// A config that weft accepts it also writes, into the run directory, and reads again when the run goes on.
#pragma once

#include <string>
#include <vector>

#include "weft/base/config.h"

#include "tests/base/memory_env.h"

namespace weft::fuzz {

inline void check_reads_back(const Config& config) {
  const std::string text = to_toml(config);
  MemoryEnv env({{"config.toml", text}});
  std::vector<std::string> warnings;
  try {
    const std::string again = to_toml(load_config("config.toml", {}, &warnings, env));
    WEFT_ASSERT(again == text, "written as\n{}\nread as\n{}", text, again);
  } catch (const Error& error) {
    WEFT_ASSERT(false, "written, and then refused: {}", error.what());
  }
}

}  // namespace weft::fuzz
