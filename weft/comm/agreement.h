// Agreement: ranks that were started with different configs, or from different builds, would hang or, worse,
// train something else than anyone asked for.
#pragma once

#include "weft/base/config.h"
#include "weft/comm/group.h"

namespace weft {

/// Throws Error on every rank, naming the first rank that has another config than the group's first, and the
/// keys that differ, or that runs other files than it does. Waits for all.
void check_agreement(Group& group, const Config& config);

}  // namespace weft
