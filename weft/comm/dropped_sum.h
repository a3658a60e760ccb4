// A test hook: the parity table must be able to fail. The sum of this name is left out wherever it would be
// made, and some row of the table has to turn red.
#pragma once

#include <string>
#include <string_view>

namespace weft {

inline std::string& dropped_sum() {
  static std::string name;
  return name;
}
inline bool dropped(std::string_view sum) { return !dropped_sum().empty() && dropped_sum() == sum; }

}  // namespace weft
