// Failing together: a rank that alone leaves a common path would leave the others waiting for it.
#pragma once

#include <functional>

#include "weft/comm/group.h"

namespace weft {

/// Runs `body`, which does not communicate. If it throws an Error on some ranks of the group, every rank
/// throws the first one's, which then names its rank. Waits for all.
void together(Group& group, const std::function<void()>& body);

}  // namespace weft
