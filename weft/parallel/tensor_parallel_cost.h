// What tensor and sequence parallelism must send by the papers' formulas (Shoeybi et al. 2019; Korthikanti et
// al., "Reducing Activation Recomputation", 2022, section 4.2.2). In a layer forward and backward enter two
// column linears and leave two row linears each: four all-reduces of [tokens, dim]; with sequence parallelism
// four reduce-scatters, and six all-gathers, two of which bring back what backward needs.
#pragma once

#include "weft/parallel/data_parallel_cost.h"

namespace weft {

/// Bytes that rank `rank` sends over tp in one training step whose micro-batches have so many tokens, of a
/// model that is trained from the embedding on.
SentBytes tensor_parallel_bytes(const Config& config, const Mesh& mesh, int64_t rank,
                                const std::vector<std::unique_ptr<ParamUnit>>& units,
                                const std::vector<int64_t>& tokens);

}  // namespace weft
