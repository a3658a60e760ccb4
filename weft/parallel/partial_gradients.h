// Gradients that are partial over tensor-parallel ranks: of norms, learned positions and row biases where
// each rank sees a part of the tokens (sequence parallelism), of QK norms, whose heads each rank has some of,
// and of key/value heads that several ranks hold.
#pragma once

#include "weft/comm/mesh_groups.h"
#include "weft/param/param_unit.h"

namespace weft {

/// Sums them, once a step, in the shards of this rank, which hold the same elements on all ranks of the
/// group; packed into one all-reduce for each group. All ranks call it.
void sum_partial_gradients(const std::vector<std::unique_ptr<ParamUnit>>& units, MeshGroups& groups);

/// How many elements of this rank's shard of the unit are summed over `count` neighbours along tp.
int64_t partial_numel(const ParamUnit& unit, int64_t count);

}  // namespace weft
