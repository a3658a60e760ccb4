#include "weft/comm/group.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>

#include "weft/base/trace.h"
#include "weft/comm/mpi_link.h"
#include "weft/comm/operation.h"
#include "weft/comm/place.h"
#include "weft/comm/progress.h"

namespace weft {
namespace {

// Tags of messages that are no user's: one per operation, so that what two operations send cannot be mixed up
// in whatever order their parts are sent.
constexpr int kFirstTag = 1 << 15, kTags = 1 << 28;

// Below this an all-reduce is one exchange of everything, above it a reduce-scatter and an all-gather.
constexpr int64_t kSmall = 16 << 10;

/// Elements [bounds[r], bounds[r + 1]) are rank r's piece.
std::vector<int64_t> even_bounds(int64_t numel, int size) {
  std::vector<int64_t> bounds;
  for (int rank = 0; rank <= size; ++rank) bounds.push_back(numel * rank / size);
  return bounds;
}

/// output = pieces[0] + pieces[1] + … in this order; output may be one of them. Half precision is summed in
/// fp32.
void ordered_sum(const at::Tensor& output, const std::vector<at::Tensor>& pieces, ReduceOp op) {
  const auto combine = [&](at::Tensor out, const at::Tensor& a, const at::Tensor& b) {
    op == ReduceOp::sum ? at::add_out(out, a, b) : at::maximum_out(out, a, b);
  };
  const bool half = output.scalar_type() == at::kHalf || output.scalar_type() == at::kBFloat16;
  if (pieces.size() == 2 && !half) return combine(output, pieces[0], pieces[1]);
  at::Tensor sum = half ? pieces[0].to(at::kFloat) : pieces[0].clone();
  for (size_t rank = 1; rank < pieces.size(); ++rank) combine(sum, sum, pieces[rank].to(sum.scalar_type()));
  output.copy_(sum);
}

at::Tensor flat(const at::Tensor& tensor) {
  WEFT_ASSERT(tensor.is_contiguous(), "only contiguous tensors can be communicated");
  return tensor.detach().view({-1});
}

void copy_unless_same(const at::Tensor& to, const at::Tensor& from) {
  if (to.data_ptr() != from.data_ptr()) to.copy_(from);
}

}  // namespace

bool Request::test() { return !operation_ || operation_->test(); }
void Request::wait() {
  if (operation_) operation_->wait();
}

Group::Group(std::string name, std::vector<int64_t> ranks, int rank, std::unique_ptr<MpiLink> link)
    : name_(std::move(name)), ranks_(std::move(ranks)), rank_(rank), link_(std::move(link)) {}
Group::~Group() = default;

std::shared_ptr<Group> Group::alone() { return std::shared_ptr<Group>(new Group("alone", {0}, 0, nullptr)); }

std::shared_ptr<Operation> Group::begin(const char* kind) {
  const int tag = kFirstTag + int(operations_++ % kTags);
  return std::make_shared<Operation>(name_, kind, *link_, tag);
}

Request Group::all_reduce(at::Tensor tensor, ReduceOp op) {
  if (!link_) return {};
  const Span span(SpanLevel::op, "all_reduce", SpanKind::communication);
  const at::Tensor whole = flat(tensor);
  const auto operation = begin("all_reduce");
  Operation* const self = operation.get();  // what it does next must not own it
  std::vector<at::Tensor> pieces;
  if (int64_t(whole.nbytes()) <= kSmall) {
    for (int peer = 0; peer < size(); ++peer) pieces.push_back(peer == rank_ ? whole : at::empty_like(whole));
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      self->receive(pieces[size_t(peer)], peer);
      self->send(whole, peer);
    }
    self->then([=] { ordered_sum(whole, pieces, op); });
  } else {
    const std::vector<int64_t> bounds = even_bounds(whole.numel(), size());
    std::vector<at::Tensor> parts;
    for (int peer = 0; peer < size(); ++peer)
      parts.push_back(whole.slice(0, bounds[size_t(peer)], bounds[size_t(peer) + 1]));
    const at::Tensor own = parts[size_t(rank_)];
    for (int peer = 0; peer < size(); ++peer) {
      pieces.push_back(peer == rank_ ? own : at::empty_like(own));
      if (peer == rank_) continue;
      self->receive(pieces.back(), peer);
      self->send(parts[size_t(peer)], peer);
    }
    self->then([=, this] {
      ordered_sum(own, pieces, op);
      for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank_) continue;
        self->receive(parts[size_t(peer)], peer);
        self->send(own, peer);
      }
    });
  }
  enter(operation);
  return Request(operation);
}

Request Group::all_gather(at::Tensor output, at::Tensor input) {
  const at::Tensor whole = flat(output), own = flat(input);
  WEFT_ASSERT(whole.numel() == own.numel() * size(), "all_gather of {} elements into {}", own.numel(),
              whole.numel());
  const auto place = [&](int peer) { return whole.narrow(0, own.numel() * peer, own.numel()); };
  copy_unless_same(place(rank_), own);
  if (!link_) return {};
  const Span span(SpanLevel::op, "all_gather", SpanKind::communication);
  const auto operation = begin("all_gather");
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    operation->receive(place(peer), peer);
    operation->send(own, peer);
  }
  enter(operation);
  return Request(operation);
}

Request Group::reduce_scatter(at::Tensor output, at::Tensor input, ReduceOp op) {
  const at::Tensor whole = flat(input), sum = flat(output);
  WEFT_ASSERT(whole.numel() == sum.numel() * size(), "reduce_scatter of {} elements into {}", whole.numel(),
              sum.numel());
  if (!link_) {
    copy_unless_same(sum, whole);
    return {};
  }
  const Span span(SpanLevel::op, "reduce_scatter", SpanKind::communication);
  const auto operation = begin("reduce_scatter");
  std::vector<at::Tensor> pieces;
  for (int peer = 0; peer < size(); ++peer) {
    const at::Tensor piece = whole.narrow(0, sum.numel() * peer, sum.numel());
    pieces.push_back(peer == rank_ ? piece : at::empty_like(sum));
    if (peer == rank_) continue;
    operation->receive(pieces.back(), peer);
    operation->send(piece, peer);
  }
  operation->then([=] { ordered_sum(sum, pieces, op); });
  enter(operation);
  return Request(operation);
}

Request Group::all_to_all(at::Tensor output, at::Tensor input, const std::vector<int64_t>& output_counts,
                          const std::vector<int64_t>& input_counts) {
  const Span span(SpanLevel::op, "all_to_all", SpanKind::communication);
  const auto operation = link_ ? begin("all_to_all") : nullptr;
  int64_t from = 0, to = 0;
  for (int peer = 0; peer < size(); ++peer) {
    const at::Tensor sent = input.narrow(0, from, input_counts[size_t(peer)]);
    const at::Tensor received = output.narrow(0, to, output_counts[size_t(peer)]);
    from += input_counts[size_t(peer)], to += output_counts[size_t(peer)];
    if (peer == rank_) {
      copy_unless_same(received, sent);
    } else {
      operation->receive(flat(received), peer);
      operation->send(flat(sent), peer);
    }
  }
  WEFT_ASSERT(from == input.size(0) && to == output.size(0), "all_to_all: {} of {} sent, {} of {} received",
              from, input.size(0), to, output.size(0));
  if (!operation) return {};
  enter(operation);
  return Request(operation);
}

Request Group::broadcast(at::Tensor tensor, int root) {
  if (!link_) return {};
  const Span span(SpanLevel::op, "broadcast", SpanKind::communication);
  const auto operation = begin("broadcast");
  if (rank_ != root) operation->receive(flat(tensor), root);
  for (int peer = 0; rank_ == root && peer < size(); ++peer)
    if (peer != root) operation->send(flat(tensor), peer);
  enter(operation);
  return Request(operation);
}

Request Group::send(at::Tensor tensor, int peer, int tag) {
  return batch({{P2P::Kind::send, std::move(tensor), peer, tag}});
}
Request Group::recv(at::Tensor tensor, int peer, int tag) {
  return batch({{P2P::Kind::recv, std::move(tensor), peer, tag}});
}

Request Group::batch(std::vector<P2P> messages) {
  WEFT_ASSERT(link_, "a rank alone sends no messages");
  const Span span(SpanLevel::op, "send_recv", SpanKind::communication);
  const auto operation = std::make_shared<Operation>(name_, "send_recv", *link_, 0);
  for (const P2P& message : messages) {
    WEFT_ASSERT(0 <= message.tag && message.tag < kFirstTag, "tag {} is none of a user's", message.tag);
    if (message.kind == P2P::Kind::send)
      operation->send(flat(message.tensor), message.peer, message.tag);
    else
      operation->receive(flat(message.tensor), message.peer, message.tag);
  }
  enter(operation);
  return Request(operation);
}

void Group::barrier() {
  if (!link_) return;
  const at::Tensor here = at::zeros({1}, at::kByte), all = at::zeros({size()}, at::kByte);
  all_gather(all, here).wait();
}

at::Tensor Group::new_buffer(int64_t numel, at::ScalarType dtype) { return at::zeros({numel}, dtype); }

CommTotals operator-(CommTotals now, const CommTotals& before) {
  for (const auto& [place, total] : before) {
    CommTotal& left = now[place];
    left.calls -= total.calls, left.bytes -= total.bytes, left.seconds -= total.seconds;
  }
  std::erase_if(now, [](const auto& entry) { return entry.second.calls == 0; });
  return now;
}

std::vector<std::string> all_gather(Group& group, const std::string& text) {
  if (group.size() == 1) return {text};
  const at::Tensor lengths = at::zeros({group.size()}, at::kLong);
  group.all_gather(lengths, at::full({1}, int64_t(text.size()), at::kLong)).wait();
  const int64_t longest = lengths.max().item<int64_t>();
  const at::Tensor own = at::zeros({longest}, at::kByte),
                   all = at::zeros({longest * group.size()}, at::kByte);
  std::memcpy(own.data_ptr(), text.data(), text.size());
  group.all_gather(all, own).wait();
  std::vector<std::string> texts;
  for (int rank = 0; rank < group.size(); ++rank)
    texts.emplace_back(static_cast<const char*>(all.data_ptr()) + longest * rank,
                       size_t(lengths[rank].item<int64_t>()));
  return texts;
}

std::string broadcast(Group& group, const std::string& text) {
  const at::Tensor length = at::full({1}, int64_t(text.size()), at::kLong);
  group.broadcast(length, 0).wait();
  const at::Tensor bytes = at::empty({length.item<int64_t>()}, at::kByte);
  if (group.rank() == 0) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  group.broadcast(bytes, 0).wait();
  return {static_cast<const char*>(bytes.const_data_ptr()), size_t(bytes.numel())};
}

std::vector<double> all_reduce(Group& group, const std::vector<double>& values, ReduceOp op) {
  const at::Tensor tensor = at::tensor(values, at::kDouble);
  group.all_reduce(tensor, op).wait();
  return {tensor.const_data_ptr<double>(), tensor.const_data_ptr<double>() + tensor.numel()};
}

World& World::join(const CommConfig& comm, const std::string& /*record_dir*/) {
  static World world = [&] {
    const Place place = find_place();
    check_can_communicate(place);
    if (place.size == 1) return World(0, 1);
    MpiLink::init();
    const int64_t rank = MpiLink::world_rank(), size = MpiLink::world_size();
    if (place.size > 0 && (size != place.size || rank != place.rank))
      fail(
          "the environment says {} and rank {}, but MPI found a job of {} and rank {}: what started this "
          "process does not go with Open MPI (use its mpirun, or srun --mpi=pmix), or is gone",
          place.size_from, place.rank, size, rank);
    return World(rank, size);
  }();
  configure_progress(comm, world.size() > 1);
  return world;
}

void World::leave() {
  stop_progress();
  MpiLink::finalize();
}

std::shared_ptr<Group> World::group(const std::string& name, const std::vector<int64_t>& ranks) {
  const auto own = std::ranges::find(ranks, rank_);
  WEFT_ASSERT(own != ranks.end(), "rank {} is not in group {}", rank_, name);
  auto link = ranks.size() > 1 ? std::make_unique<MpiLink>(ranks) : nullptr;
  return std::shared_ptr<Group>(new Group(name, ranks, int(own - ranks.begin()), std::move(link)));
}

void World::poll() { poll_operations(); }
CommTotals World::totals() { return comm_totals(); }

}  // namespace weft
