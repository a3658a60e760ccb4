#include "weft/ops/tensor_parallel.h"

#include <vector>

#include <ATen/ATen.h>

#include "weft/comm/ordered_sum.h"

namespace weft {

namespace {

enum Tag { kEnters, kLeaves };

at::Tensor piece(const at::Tensor& x, int64_t rank, int64_t rows) { return x.narrow(0, rank * rows, rows); }

}  // namespace

Arriving TensorParallel::enter(const at::Tensor& x) const {
  if (!sequence || size() == 1) return {x, {}, {}};
  const at::Tensor own = x.contiguous();
  const at::Tensor all = at::empty({own.size(0) * size(), own.size(1)}, own.options());
  return {all, group->all_gather(all, own), {}};
}

Arriving TensorParallel::leave(const at::Tensor& partial) const {
  if (size() == 1) return {partial, {}, {}};
  if (!sequence) return {partial, group->all_reduce(partial), {}};
  const at::Tensor own = at::empty({partial.size(0) / size(), partial.size(1)}, partial.options());
  return {own, group->reduce_scatter(own, partial), {}};
}

// The own piece first, then the next rank's and so on: each rank begins with another, and all links are used.
std::pair<at::Tensor, at::Tensor> TensorParallel::enter_mm(const at::Tensor& x, const at::Tensor& w) const {
  if (!is_async()) {
    const at::Tensor all = enter(x).wait();
    return {all, at::mm(all, w)};
  }
  const int64_t rows = x.size(0);
  const at::Tensor own = x.contiguous();
  const at::Tensor all = at::empty({rows * size(), x.size(1)}, x.options());
  const at::Tensor product = at::empty({rows * size(), w.size(1)}, x.options());
  std::vector<Request> sent, received;
  for (int64_t i = 1; i < size(); ++i) {
    received.push_back(group->recv(piece(all, peer(i), rows), peer(i), kEnters));
    sent.push_back(group->send(own, peer(-i), kEnters));
  }
  piece(all, rank(), rows).copy_(own);
  for (int64_t i = 0; i < size(); ++i) {
    if (i > 0) received[size_t(i - 1)].wait();
    at::Tensor out = piece(product, peer(i), rows);
    at::mm_out(out, piece(all, peer(i), rows), w);
    World::poll();
  }
  for (Request& request : sent) request.wait();
  return {all, product};
}

// The other ranks' pieces first, the next rank's at the beginning, and the own one while the last ones
// travel.
Arriving TensorParallel::mm_leave(const at::Tensor& x, const at::Tensor& w) const {
  if (!is_async()) return leave(at::mm(x, w));
  const int64_t rows = x.size(0) / size();
  std::vector<at::Tensor> parts;
  parts.resize(size_t(size()));
  std::vector<Request> requests;
  for (int64_t i = 1; i < size(); ++i) {
    at::Tensor& part = parts[size_t(peer(-i))] = at::empty({rows, w.size(1)}, x.options());
    requests.push_back(group->recv(part, peer(-i), kLeaves));
  }
  for (int64_t i = 1; i < size(); ++i) {
    requests.push_back(group->send(at::mm(piece(x, peer(i), rows), w), peer(i), kLeaves));
    World::poll();
  }
  parts[size_t(rank())] = at::mm(piece(x, rank(), rows), w);
  const at::Tensor sum = at::empty({rows, w.size(1)}, x.options());
  return {sum, {}, [=]() mutable {
            for (Request& request : requests) request.wait();
            for (at::Tensor& part : parts) part = part.view({-1});
            ordered_sum(sum.view({-1}), parts, ReduceOp::sum);
          }};
}

at::Tensor TensorParallel::outside(const at::Tensor& x) const {
  if (!sequence) return x;
  const int64_t rows = x.size(0) / size();
  return x.narrow(0, rank() * rows, rows);
}

at::Tensor TensorParallel::gather(const at::Tensor& x) const {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.insert(shape.begin(), size());
  if (size() == 1) return x.view(shape);
  const at::Tensor all = at::empty(shape, x.options());
  group->all_gather(all.view({-1}), x.contiguous().view({-1})).wait();
  return all;
}

}  // namespace weft
