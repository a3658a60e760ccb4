// A clock for traces that stands still until a test moves it.
#pragma once

#include <cstdint>

#include "weft/base/trace.h"

namespace weft {

struct FakeClock {
  static inline int64_t now = 0;  // nanoseconds

  static void install() {
    now = 0;
    Trace::global().restart([] { return now; });
  }
  /// Every reading is 10 ns after the one before.
  static void install_ticking() {
    now = 0;
    Trace::global().restart([] { return now += 10; });
  }
};

}  // namespace weft
