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

/// `average`: a moving average of the weights is kept. `tied`: units of which two blocks use the weights.
HeldBytes held_bytes(const Config& config, const Mesh& mesh,
                     const std::vector<std::unique_ptr<ParamUnit>>& units,
                     const std::vector<ParamUnit*>& tied);

/// Bytes that rank `rank` sends in one training step of so many micro-batches, by group and operation.
/// Control messages (norm, loss, whether to stop) are not in it.
std::map<std::pair<std::string, std::string>, int64_t> sent_bytes(
    const Config& config, const Mesh& mesh, int64_t rank,
    const std::vector<std::unique_ptr<ParamUnit>>& units, const std::vector<ParamUnit*>& tied,
    int64_t micro_batches);

}  // namespace weft
