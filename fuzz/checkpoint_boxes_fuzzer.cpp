#include "weft/checkpoint/format.h"

#include "fuzz/targets.h"

namespace weft::fuzz {

void checkpoint_boxes(std::string_view input) {
  const std::string written = boxes_text(parse_boxes(std::string(input), "file"));
  WEFT_ASSERT(boxes_text(parse_boxes(written, "file")) == written, "{} does not read back the same", written);
}

}  // namespace weft::fuzz
