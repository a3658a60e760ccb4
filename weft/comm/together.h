// Failing together: a rank that alone leaves a common path would leave the others waiting for it.
#pragma once

#include <functional>

#include "weft/comm/group.h"

namespace weft {

/// Every rank of the group throws it: they are still together, and may save what they have.
struct JointError : Error {
  using Error::Error;
};

/// Runs `body`, after which all ranks have communicated alike whether it fails or not. If it throws an Error
/// on some ranks of the group, every rank throws the first one's as a JointError, which then names its rank
/// unless all say the same. Waits for all.
void together(Group& group, const std::function<void()>& body);

/// What only the first rank does, together().
void on_first(Group& group, const std::function<void()>& body);

}  // namespace weft
