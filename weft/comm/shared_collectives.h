// Collectives of tensors that lie in memory which all ranks of their group share: each rank reads the others'
// data where it lies. Sums have the bits that messages would give, and as many bytes count.
#pragma once

#include <optional>

#include "weft/comm/operation.h"

namespace weft {

/// The place of a tensor in a shared buffer of its group: the same one on all ranks.
struct SharedPlace {
  std::shared_ptr<SharedMemory> memory;
  int number;         // the buffer's
  int64_t offset;     // in it, in bytes
  uint64_t turn = 0;  // the operation's number among those of the buffer
};
std::optional<SharedPlace> find_shared(const Channel& channel, const at::Tensor& tensor);

/// Adds to an operation that memory is made which its ranks share, `bytes` for each. It stays null where they
/// cannot, on all of them; unless they are on several machines, the first rank says why.
void share_memory(Operation* operation, int64_t bytes,
                  const std::shared_ptr<std::shared_ptr<SharedMemory>>& memory);

/// This rank's part of it, which gives it back in the end.
at::Tensor shared_tensor(const std::shared_ptr<Channel>& channel, const std::shared_ptr<SharedMemory>& memory,
                         int64_t numel, at::ScalarType dtype);

// As Group's collectives of these names. `whole` lies at `place`; the output, or input, of this rank alone
// is its place in `whole`, or (reduce_scatter) anywhere.
void all_gather_shared(Operation* operation, const SharedPlace& place, const at::Tensor& whole);
void reduce_scatter_shared(Operation* operation, const SharedPlace& place, const at::Tensor& whole,
                           const at::Tensor& sum, ReduceOp op);
void all_reduce_shared(Operation* operation, const SharedPlace& place, const at::Tensor& whole, ReduceOp op);

}  // namespace weft
