// What a process holds in memory, by kind: every long-lived or large buffer is entered here when it is made
// and leaves when it is freed, so that memory is counted, not estimated.
#pragma once

#include <cstdint>

namespace weft {

enum class MemoryKind {
  params,     // weights that stay, whole or as shards
  gradients,  // buffers that stay
  optimizer,  // its state, and the moving average of the weights
  gathered,   // buffers for the units whose weights are gathered (zero 3)
  reduced,    // buffers for the units whose gradients are being made and reduced (zero 2, 3)
};

/// Enters `bytes` of a kind as long as it lives.
class CountedBytes {
 public:
  CountedBytes(MemoryKind kind, int64_t bytes);
  ~CountedBytes();
  CountedBytes(const CountedBytes&) = delete;

 private:
  MemoryKind kind_;
  int64_t bytes_;
};

int64_t counted_bytes(MemoryKind kind);  // now

}  // namespace weft
