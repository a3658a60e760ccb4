#include "weft/comm/shared_collectives.h"

#include <cstring>

#include <ATen/ATen.h>

#include "weft/comm/alike.h"
#include "weft/comm/ordered_sum.h"

namespace weft {
namespace {

using Counters = SharedMemory::Counters;

/// What lies at this place on another rank.
at::Tensor on_rank(const SharedPlace& place, int rank, const at::Tensor& whole) {
  return at::from_blob(place.memory->buffer(rank) + place.offset, whole.sizes(), whole.options());
}

void come_to(Operation* operation, const SharedPlace& place, Operation::Counter counter) {
  (place.memory->counters(operation->channel().rank).*counter).store(place.turn, std::memory_order_release);
}

/// What follows may read the others' data. An operation begins when all ranks are done with the one before in
/// this buffer, so that counters never fall.
void begin(Operation* operation, const SharedPlace& place) {
  operation->await(place.memory, &Counters::done, place.turn - 1);
  operation->then([=] { come_to(operation, place, &Counters::ready); });
  operation->await(place.memory, &Counters::ready, place.turn);
}

/// This rank has read what it needs; the others may still read its own.
void end(Operation* operation, const SharedPlace& place) {
  operation->then([=] { come_to(operation, place, &Counters::done); });
  operation->await(place.memory, &Counters::done, place.turn);
}

/// Adds that piece r of `whole` is copied from rank r, for each other rank.
void copy_pieces(Operation* operation, const SharedPlace& place, const at::Tensor& whole,
                 const std::vector<int64_t>& bounds) {
  const int rank = operation->channel().rank, ranks = operation->channel().size();
  const int64_t own = bounds[size_t(rank) + 1] - bounds[size_t(rank)];
  operation->count((whole.numel() - own) * int64_t(whole.element_size()));
  operation->then([=] {
    for (int step = 1; step < ranks; ++step) {  // not all from the same at a time
      const size_t peer = size_t((rank + step) % ranks);
      const at::Tensor there = on_rank(place, int(peer), whole);
      whole.slice(0, bounds[peer], bounds[peer + 1]).copy_(there.slice(0, bounds[peer], bounds[peer + 1]));
    }
  });
}

/// Adds that sum = the sum of all ranks' elements of `whole` from here on.
void sum_pieces(Operation* operation, const SharedPlace& place, const at::Tensor& whole, int64_t from,
                const at::Tensor& sum, ReduceOp op) {
  const int rank = operation->channel().rank, ranks = operation->channel().size();
  operation->count((ranks - 1) * int64_t(sum.nbytes()));
  operation->then([=] {
    std::vector<at::Tensor> pieces;
    for (int peer = 0; peer < ranks; ++peer)
      pieces.push_back((peer == rank ? whole : on_rank(place, peer, whole)).narrow(0, from, sum.numel()));
    ordered_sum(sum, pieces, op);
  });
}

std::string& said() {
  static std::string text;
  return text;
}

}  // namespace

std::optional<SharedPlace> find_shared(const Channel& channel, const at::Tensor& tensor) {
  const char* const data = static_cast<const char*>(tensor.const_data_ptr());
  auto found = channel.buffers.upper_bound(data);
  if (found == channel.buffers.begin()) return {};
  const auto& [base, buffer] = *--found;
  if (data + tensor.nbytes() > base + buffer.bytes) return {};
  return SharedPlace{.memory = buffer.memory.lock(), .number = buffer.number, .offset = data - base};
}

void share_memory(Operation* operation, int64_t bytes,
                  const std::shared_ptr<std::shared_ptr<SharedMemory>>& memory) {
  const auto problem = std::make_shared<std::string>();
  const int ranks = operation->channel().size();
  const bool first = operation->channel().rank == 0;
  SharedMemory::Address address;
  if (first) {
    try {
      *memory = SharedMemory::create(ranks, bytes, &address);
    } catch (const Error& error) {
      *problem = error.what();
    }
  }
  const Told addresses = exchange(operation, &address, sizeof address);
  const auto outcomes = std::make_shared<Told>();
  operation->then([=] {
    SharedMemory::Address theirs;
    std::memcpy(&theirs, addresses->front().data_ptr(), sizeof theirs);
    if (!first) *memory = SharedMemory::open(theirs, ranks, bytes, problem.get());
    char outcome[256] = {};  // whether it has it, and why not
    outcome[0] = *memory ? 1 : 0;
    problem->copy(outcome + 1, sizeof outcome - 2);
    *outcomes = exchange(operation, outcome, sizeof outcome);
  });
  operation->then([=] {
    bool all = true;
    std::string why;
    for (const at::Tensor& outcome : **outcomes) {
      const char* const text = static_cast<const char*>(outcome.const_data_ptr());
      all = all && text[0] == 1;
      if (why.empty()) why = text + 1;
    }
    if (*memory) (*memory)->stop_sharing();
    if (!all) memory->reset();
    if (!all && first && !why.empty() && std::exchange(said(), why) != why)
      fmt::print(stderr, "weft: ranks of this machine send messages instead of sharing memory: {}\n", why);
  });
}

at::Tensor shared_tensor(const std::shared_ptr<Channel>& channel, const std::shared_ptr<SharedMemory>& memory,
                         int64_t numel, at::ScalarType dtype) {
  char* const data = memory->buffer(channel->rank);
  const auto give_back = [channel, memory](void* base) { channel->buffers.erase(static_cast<char*>(base)); };
  const at::Tensor tensor = at::from_blob(data, {numel}, give_back, at::TensorOptions(dtype));
  channel->buffers[data] = {channel->buffers_made++, int64_t(tensor.nbytes()), memory};
  return tensor;
}

void all_gather_shared(Operation* operation, const SharedPlace& place, const at::Tensor& whole) {
  begin(operation, place);
  copy_pieces(operation, place, whole, even_bounds(whole.numel(), operation->channel().size()));
  end(operation, place);
}

void reduce_scatter_shared(Operation* operation, const SharedPlace& place, const at::Tensor& whole,
                           const at::Tensor& sum, ReduceOp op) {
  begin(operation, place);
  sum_pieces(operation, place, whole, sum.numel() * operation->channel().rank, sum, op);
  end(operation, place);
}

// Nobody but this rank touches its piece on this rank until the sum is in it, and its other pieces are read
// by their owners only before these have made their sums: so all of it can be done in place.
void all_reduce_shared(Operation* operation, const SharedPlace& place, const at::Tensor& whole, ReduceOp op) {
  const size_t rank = size_t(operation->channel().rank);
  const std::vector<int64_t> bounds = even_bounds(whole.numel(), operation->channel().size());
  begin(operation, place);
  sum_pieces(operation, place, whole, bounds[rank], whole.slice(0, bounds[rank], bounds[rank + 1]), op);
  operation->then([=] { come_to(operation, place, &Counters::sums); });
  operation->await(place.memory, &Counters::sums, place.turn);
  copy_pieces(operation, place, whole, bounds);
  end(operation, place);
}

}  // namespace weft
