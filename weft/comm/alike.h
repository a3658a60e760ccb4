// comm.check: before a collective moves any data, the ranks of its group tell each other what they are about
// to do.
#pragma once

#include <vector>

#include "weft/comm/op_record.h"
#include "weft/comm/operation.h"

namespace weft {

/// What each rank of the group tells the others, `bytes` bytes; there once the operation's messages are in.
using Told = std::shared_ptr<std::vector<at::Tensor>>;
Told exchange(Operation* operation, const void* own, size_t bytes, int tag = -1);

/// Adds this to the operation's beginning. Where not all do the same, it throws the same CommError on every
/// rank, which names those that differ. `counts`: of an all_to_all, what this rank sends to each other and
/// then what it expects of each.
void check_alike(Operation* operation, const OpRecord& what, const std::vector<int64_t>& counts, int tag);

}  // namespace weft
