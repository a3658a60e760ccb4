#include "weft/base/error.h"
#include "weft/comm/recordings.h"

#include "fuzz/targets.h"

namespace weft::fuzz {

void recording(std::string_view input) {
  const Recording recording = parse_recording(input, "file");
  const std::string text = compare_recordings({recording, recording});
  WEFT_ASSERT(!text.empty() && text.back() == '\n', "a comparison of no whole lines: {}", text);
}

}  // namespace weft::fuzz
