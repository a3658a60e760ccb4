#include "weft/base/memory.h"

#include <array>
#include <atomic>
#include <cstddef>

namespace weft {
namespace {

std::array<std::atomic<int64_t>, size_t(MemoryKind::reduced) + 1> counts;

}  // namespace

CountedBytes::CountedBytes(MemoryKind kind, int64_t bytes) : kind_(kind), bytes_(bytes) {
  counts[size_t(kind)] += bytes;
}
CountedBytes::~CountedBytes() { counts[size_t(kind_)] -= bytes_; }

int64_t counted_bytes(MemoryKind kind) { return counts[size_t(kind)]; }

}  // namespace weft
