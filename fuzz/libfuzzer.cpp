// libFuzzer's entry point of one target, WEFT_FUZZ_TARGET.
#include <cstddef>
#include <cstdint>

#include "weft/base/error.h"

#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    weft::fuzz::WEFT_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  } catch (const weft::Error&) {  // refused, as it may be
  }
  return 0;
}
