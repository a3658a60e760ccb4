// Tensor parallelism (Shoeybi et al. 2019) and sequence parallelism (Korthikanti et al. 2022): the exchanges
// that ops make. Between blocks every rank has all tokens, or with sequence parallelism its part of them;
// inside, a column linear enters a region in which each rank has all tokens and its part of the features, and
// a row linear leaves it. Backward passes the other way: what forward enters, gradients leave.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include <ATen/core/Tensor.h>

#include "weft/comm/group.h"

namespace weft {

/// A tensor that is there after wait().
struct Arriving {
  at::Tensor tensor;
  Request work;
  std::function<void()> finish;  // what is left to do when it has arrived

  const at::Tensor& wait() {
    work.wait();
    if (finish) std::exchange(finish, nullptr)();
    return tensor;
  }
};

/// The ranks that split a block's features. All of them call the same functions in the same order.
struct TensorParallel {
  Group* group = nullptr;  // null: this one alone
  bool sequence = false;   // outside, tokens are split
  bool async = false;      // with sequence: products are made piece by piece, while others travel (async TP)

  int64_t size() const { return group ? group->size() : 1; }
  int64_t rank() const { return group ? group->rank() : 0; }

  /// x [tokens outside, dim] of every rank -> [tokens, dim].
  Arriving enter(const at::Tensor& x) const;

  /// The ranks' sum of `partial` [tokens, dim], which is overwritten -> [tokens outside, dim].
  Arriving leave(const at::Tensor& partial) const;

  /// enter(x), and its product with w [dim, features]. Async: each rank's piece is multiplied when it has come.
  std::pair<at::Tensor, at::Tensor> enter_mm(const at::Tensor& x, const at::Tensor& w) const;

  /// leave(x w), x [tokens, features]. Async: each rank's piece is sent when it is made.
  Arriving mm_leave(const at::Tensor& x, const at::Tensor& w) const;

  /// The rows of x [tokens, ...] that this rank has outside, as a view.
  at::Tensor outside(const at::Tensor& x) const;

  /// All ranks' x, one behind the other along a new first dim: [size, ...].
  at::Tensor gather(const at::Tensor& x) const;

 private:
  bool is_async() const { return async && sequence && size() > 1; }
  int peer(int64_t distance) const { return int((rank() + size() + distance) % size()); }
};

}  // namespace weft
