// A test hook: the parity table must be able to fail. The sum of this name is left out wherever it would be
// made, and some row of the table has to turn red.
#pragma once

#include <string>
#include <string_view>

namespace weft {

/// The sums of the design's gradient table, and of what belongs to them, that exist.
inline constexpr std::string_view kSumOfReplicas = "gradients over dp_replicate";
inline constexpr std::string_view kSums[] = {
    "gradients over dp_replicate x dp_shard",  // zero 0
    "gradients over dp_shard",
    kSumOfReplicas,    // whose copies then differ
    "tied embedding",  // of its two uses
    "gradient norm over dp_shard",
    "gradient norm over tp",
    "input_layernorm over tp",  // of params that each tp rank applies to its tokens
    "model.norm over tp",
    "o_proj.bias over tp",
    "embed_positions over tp",
    "q_norm over tp",  // to its heads
    "k_proj over tp",  // where several ranks hold a head
    "targets over data ranks",
    "loss over data ranks",
    "validation loss over data ranks",
};

/// "": none is.
inline std::string& dropped_sum() {
  static std::string name;
  return name;
}
inline bool dropped(std::string_view sum) { return dropped_sum() == sum; }

}  // namespace weft
