#include "weft/checkpoint/format.h"

#include "fuzz/targets.h"

namespace weft::fuzz {

void checkpoint_index(std::string_view input) {
  // With the checksum made right, mutations get past it.
  const std::string text(input), sum = checksum(std::as_bytes(std::span(input)));
  const Checkpoint read = parse_index(text + ",\n\"checksum\": \"" + sum + "\"\n}\n", "dir");
  const std::string written = index_text(read);
  WEFT_ASSERT(index_text(parse_index(written, "dir")) == written, "{} does not read back the same", written);
}

}  // namespace weft::fuzz
