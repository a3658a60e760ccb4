// What data parallelism must cost by the papers' formulas (Rajbhandari et al., "ZeRO", 2020, sections 5 and
// 7): the bytes that a rank holds, and those that it sends. DataParallel is tested against them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/config.h"
#include "weft/comm/mesh.h"
#include "weft/param/param_unit.h"

namespace weft {

/// Bytes that stay, and the most that passes over the model may add.
struct HeldBytes {
  int64_t params = 0, gradients = 0, optimizer = 0;
  int64_t gathered = 0, reduced = 0;  // at most
};

/// Bytes that a rank sends in one training step, by group and operation.
using SentBytes = std::map<std::pair<std::string, std::string>, int64_t>;

/// Bytes that rank `index` of n sends to all-reduce `numel` elements: a reduce-scatter, in which each other
/// rank gets its piece of them, and an all-gather of its own; or, if they are few, everything at once.
int64_t all_reduce_bytes(int64_t numel, int64_t element, int64_t index, int64_t n);

/// `tied`: units of which two blocks use the weights.
HeldBytes held_bytes(const Config& config, const Mesh& mesh,
                     const std::vector<std::unique_ptr<ParamUnit>>& units,
                     const std::vector<ParamUnit*>& tied);

/// What rank `rank` sends to data-parallel ranks in a step of so many micro-batches. Control messages (norm,
/// loss, whether to stop) are not in it.
SentBytes sent_bytes(const Config& config, const Mesh& mesh, int64_t rank,
                     const std::vector<std::unique_ptr<ParamUnit>>& units,
                     const std::vector<ParamUnit*>& tied, int64_t micro_batches);

}  // namespace weft
