#include "weft/comm/group.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>
#include <thread>

#include <unistd.h>

#include <ATen/ATen.h>

#include "weft/base/trace.h"
#include "weft/comm/alike.h"
#include "weft/comm/mpi_link.h"
#include "weft/comm/operation.h"
#include "weft/comm/ordered_sum.h"
#include "weft/comm/place.h"
#include "weft/comm/progress.h"
#include "weft/comm/shared_collectives.h"
#include "weft/comm/supervised.h"

namespace weft {
namespace {

// Tags of messages that are no user's: one per operation, so that what two operations send cannot be mixed up
// in whatever order their parts are sent, and one for what comm.check sends before it. All fit the 23 bits
// that MPI's transports leave.
constexpr int kFirstTag = 1 << 15, kTags = 1 << 21, kCheckTags = 1 << 22;

// Below this an all-reduce is one exchange of everything, above it a reduce-scatter and an all-gather. Two
// ranks send as much either way: the exchange takes half as long, and more memory.
constexpr int64_t kSmall = 16 << 10, kSmallForTwo = 1 << 20;

std::string dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "fp32";
    case at::kDouble:
      return "fp64";
    case at::kBFloat16:
      return "bf16";
    case at::kHalf:
      return "fp16";
    case at::kLong:
      return "int64";
    case at::kByte:
      return "uint8";
    default:
      return at::toString(dtype);
  }
}

/// What is written down of an operation on this tensor.
OpRecord record_of(const char* kind, const at::Tensor& tensor) {
  OpRecord record;
  set_field(record.kind, kind);
  set_field(record.dtype, dtype_name(tensor.scalar_type()));
  record.numel = tensor.numel();
  return record;
}
OpRecord record_of(const char* kind, const at::Tensor& tensor, ReduceOp op) {
  OpRecord record = record_of(kind, tensor);
  set_field(record.reduction, op == ReduceOp::sum ? "sum" : "max");
  return record;
}
OpRecord record_of(const char* kind, const at::Tensor& tensor, int peer) {
  OpRecord record = record_of(kind, tensor);
  record.peer = peer;
  return record;
}

at::Tensor flat(const at::Tensor& tensor) {
  WEFT_ASSERT(tensor.is_contiguous(), "only contiguous tensors can be communicated");
  return tensor.dim() == 1 && !tensor.requires_grad() ? tensor : tensor.detach().view({-1});
}

void copy_unless_same(const at::Tensor& to, const at::Tensor& from) {
  if (to.data_ptr() != from.data_ptr()) to.copy_(from);
}

/// sum = the sum of what is at this rank's place among all ranks' pieces: they are exchanged, and what came
/// is added up.
void exchange_and_sum(Operation* operation, const std::vector<at::Tensor>& pieces, const at::Tensor& sum,
                      ReduceOp op) {
  const Channel& channel = operation->channel();
  std::vector<at::Tensor> summands;
  for (int peer = 0; peer < channel.size(); ++peer) {
    const at::Tensor& piece = pieces[size_t(peer)];
    summands.push_back(peer == channel.rank ? piece : at::empty_like(pieces[size_t(channel.rank)]));
    if (peer == channel.rank) continue;
    operation->receive(summands.back(), peer);
    operation->send(piece, peer);
  }
  operation->then([=] { ordered_sum(sum, summands, op); });
}

/// A reduce-scatter and an all-gather.
void all_reduce_in_parts(Operation* operation, const at::Tensor& whole, ReduceOp op) {
  const Channel& channel = operation->channel();
  const std::vector<int64_t> bounds = even_bounds(whole.numel(), channel.size());
  std::vector<at::Tensor> parts;
  for (size_t peer = 0; peer + 1 < bounds.size(); ++peer)
    parts.push_back(whole.slice(0, bounds[peer], bounds[peer + 1]));
  const at::Tensor own = parts[size_t(channel.rank)];
  exchange_and_sum(operation, parts, own, op);
  operation->then([=] {
    const Channel& again = operation->channel();
    for (int peer = 0; peer < again.size(); ++peer) {
      if (peer == again.rank) continue;
      operation->receive(parts[size_t(peer)], peer);
      operation->send(own, peer);
    }
  });
}

}  // namespace

bool Request::test() { return !operation_ || operation_->test(); }
void Request::wait() {
  if (operation_) operation_->wait();
}

Group::Group(std::string name, std::vector<int64_t> ranks, int rank)
    : name_(std::move(name)), ranks_(std::move(ranks)), rank_(rank) {
  if (size() == 1) return;
  const uint32_t recorded = recorder() ? recorder()->add_group(name_, ranks_) : FlightRecorder::kUnlisted;
  const uint64_t before = recorder() ? recorder()->last_sequence(recorded) : 0;
  channel_ = std::shared_ptr<Channel>(new Channel{name_, ranks_, rank_, MpiLink(ranks_), recorded, before});
}
Group::~Group() = default;

std::shared_ptr<Group> Group::alone() { return std::shared_ptr<Group>(new Group("alone", {0}, 0)); }

Request Group::collective(const char* kind, OpRecord what, const std::optional<SharedPlace>& place,
                          const std::function<void(Operation*)>& work, const std::vector<int64_t>& counts) {
  const Span span(SpanLevel::op, kind, SpanKind::communication);
  const int tag = int(++channel_->operations % kTags);
  what.sequence = channel_->recorded_before + channel_->operations;
  what.group = channel_->recorded;
  if (place) what.buffer = place->number;
  const auto operation = std::make_shared<Operation>(channel_, kind, kFirstTag + tag);
  operation->record(what);
  if (comm_config().check) {
    check_alike(operation.get(), what, counts, kCheckTags + tag);
    operation->then([work, self = operation.get()] { work(self); });
  } else {
    work(operation.get());
  }
  enter(operation);
  if (place) operation->test();  // tells the others that this rank is ready
  return Request(operation);
}

std::optional<SharedPlace> Group::place_of(const at::Tensor& whole) {
  if (int64_t(whole.nbytes()) <= kSmall) return {};  // messages are faster
  auto place = find_shared(*channel_, whole);
  if (place) place->turn = ++place->memory->operations;
  return place;
}

Request Group::all_reduce(at::Tensor tensor, ReduceOp op) {
  if (!channel_) return {};
  const at::Tensor whole = flat(tensor);
  const bool small = int64_t(whole.nbytes()) <= (size() == 2 ? kSmallForTwo : kSmall);
  const size_t ranks = ranks_.size();
  const auto place = place_of(whole);
  return collective("all_reduce", record_of("all_reduce", whole, op), place, [=](Operation* operation) {
    if (place) return all_reduce_shared(operation, *place, whole, op);
    if (!small) return all_reduce_in_parts(operation, whole, op);
    exchange_and_sum(operation, std::vector<at::Tensor>(ranks, whole), whole, op);
  });
}

Request Group::all_gather(at::Tensor output, at::Tensor input) {
  const at::Tensor whole = flat(output), own = flat(input);
  WEFT_ASSERT(whole.numel() == own.numel() * size(), "all_gather of {} elements into {}", own.numel(),
              whole.numel());
  copy_unless_same(whole.narrow(0, own.numel() * rank_, own.numel()), own);
  if (!channel_) return {};
  const auto place = place_of(whole);
  return collective("all_gather", record_of("all_gather", whole), place, [=](Operation* operation) {
    if (place) return all_gather_shared(operation, *place, whole);
    const Channel& channel = operation->channel();
    for (int peer = 0; peer < channel.size(); ++peer) {
      if (peer == channel.rank) continue;
      operation->receive(whole.narrow(0, own.numel() * peer, own.numel()), peer);
      operation->send(own, peer);
    }
  });
}

Request Group::reduce_scatter(at::Tensor output, at::Tensor input, ReduceOp op) {
  const at::Tensor whole = flat(input), sum = flat(output);
  WEFT_ASSERT(whole.numel() == sum.numel() * size(), "reduce_scatter of {} elements into {}", whole.numel(),
              sum.numel());
  if (!channel_) {
    copy_unless_same(sum, whole);
    return {};
  }
  const auto place = place_of(whole);
  return collective("reduce_scatter", record_of("reduce_scatter", whole, op), place,
                    [=](Operation* operation) {
                      if (place) return reduce_scatter_shared(operation, *place, whole, sum, op);
                      std::vector<at::Tensor> pieces;
                      for (int peer = 0; peer < operation->channel().size(); ++peer)
                        pieces.push_back(whole.narrow(0, sum.numel() * peer, sum.numel()));
                      exchange_and_sum(operation, pieces, sum, op);
                    });
}

Request Group::all_to_all(at::Tensor output, at::Tensor input, const std::vector<int64_t>& output_counts,
                          const std::vector<int64_t>& input_counts) {
  std::vector<at::Tensor> sent, received;
  int64_t from = 0, to = 0;
  for (size_t peer = 0; peer < ranks_.size(); ++peer) {
    sent.push_back(flat(input.narrow(0, from, input_counts[peer])));
    received.push_back(flat(output.narrow(0, to, output_counts[peer])));
    from += input_counts[peer], to += output_counts[peer];
  }
  WEFT_ASSERT(from == input.size(0) && to == output.size(0), "all_to_all: {} of {} sent, {} of {} received",
              from, input.size(0), to, output.size(0));
  copy_unless_same(received[size_t(rank_)], sent[size_t(rank_)]);
  if (!channel_) return {};
  std::vector<int64_t> counts;
  for (const auto* tensors : {&sent, &received})
    for (const at::Tensor& tensor : *tensors) counts.push_back(tensor.numel());
  return collective(
      "all_to_all", record_of("all_to_all", input), {},
      [=](Operation* operation) {
        for (int peer = 0; peer < int(sent.size()); ++peer) {
          if (peer == operation->channel().rank) continue;
          operation->receive(received[size_t(peer)], peer);
          operation->send(sent[size_t(peer)], peer);
        }
      },
      counts);
}

Request Group::broadcast(at::Tensor tensor, int root) {
  if (!channel_) return {};
  const at::Tensor whole = flat(tensor);
  return collective("broadcast", record_of("broadcast", whole, root), {}, [=](Operation* operation) {
    const Channel& channel = operation->channel();
    if (channel.rank != root) operation->receive(whole, root);
    for (int peer = 0; channel.rank == root && peer < channel.size(); ++peer)
      if (peer != root) operation->send(whole, peer);
  });
}

Request Group::send(at::Tensor tensor, int peer, int tag) {
  return batch({{P2P::Kind::send, std::move(tensor), peer, tag}});
}
Request Group::recv(at::Tensor tensor, int peer, int tag) {
  return batch({{P2P::Kind::recv, std::move(tensor), peer, tag}});
}

Request Group::batch(std::vector<P2P> messages) {
  WEFT_ASSERT(channel_, "a rank alone sends no messages");
  const Span span(SpanLevel::op, "send_recv", SpanKind::communication);
  const auto operation = std::make_shared<Operation>(channel_, "send_recv", 0);
  for (const P2P& message : messages) {
    WEFT_ASSERT(0 <= message.tag && message.tag < kFirstTag, "tag {} is none of a user's", message.tag);
    const at::Tensor tensor = flat(message.tensor);
    const bool sends = message.kind == P2P::Kind::send;
    OpRecord what = record_of(sends ? "send" : "recv", tensor, message.peer);
    what.tag = message.tag;
    what.group = channel_->recorded;
    operation->record(what);
    sends ? operation->send(tensor, message.peer, message.tag)
          : operation->receive(tensor, message.peer, message.tag);
  }
  enter(operation);
  return Request(operation);
}

void Group::barrier() {
  if (!channel_) return;
  const at::Tensor here = at::zeros({1}, at::kByte), all = at::zeros({size()}, at::kByte);
  all_gather(all, here).wait();
}

at::Tensor Group::new_buffer(int64_t numel, at::ScalarType dtype) {
  if (channel_ && comm_config().shared_memory && numel > 0) {
    OpRecord what = record_of("new_buffer", at::empty({0}, dtype));
    what.numel = numel;
    const auto memory = std::make_shared<std::shared_ptr<SharedMemory>>();
    collective("new_buffer", what, {}, [=](Operation* operation) {
      share_memory(operation, numel * int64_t(at::elementSize(dtype)), memory);
    }).wait();
    if (*memory) return shared_tensor(channel_, *memory, numel, dtype);
  }
  return at::zeros({numel}, dtype);
}

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

namespace {

constexpr double kStartSeconds = 30;  // at least: a busy machine needs its time

/// Ends the process unless it goes out of scope in time: MPI itself would wait for ever for a rank that does
/// not join.
class StartDeadline {
 public:
  explicit StartDeadline(double seconds)
      : thread_([this, seconds] {
          std::unique_lock lock(mutex_);
          if (in_time_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return done_; }))
            return;
          _exit(report_failure(
              Failure::comm,
              fmt::format(
                  "the job did not get together within {} s (comm.timeout, at least {}): a rank is not "
                  "there, runs another program, or hangs",
                  seconds, kStartSeconds)));
        }) {}
  ~StartDeadline() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    in_time_.notify_all();
    thread_.join();
  }
  StartDeadline(const StartDeadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable in_time_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace

World& World::join(const CommConfig& comm, const std::string& record_dir) {
  static World world = [&] {
    const Place place = find_place();
    check_can_communicate(place);
    if (place.size == 1) return World(0, 1);
    {
      const StartDeadline deadline(std::max(comm.timeout, kStartSeconds));
      MpiLink::init();
    }
    const int64_t rank = MpiLink::world_rank(), size = MpiLink::world_size();
    if (place.size > 0 && (size != place.size || rank != place.rank))
      fail(
          "the environment says {} and rank {}, but MPI found a job of {} and rank {}: what started this "
          "process does not go with Open MPI (use its mpirun, or srun --mpi=pmix), or is gone",
          place.size_from, place.rank, size, rank);
    if (size > 1 && !record_dir.empty()) {
      const auto now = std::chrono::system_clock::now().time_since_epoch().count();
      const uint64_t run = MpiLink::first_ranks(uint64_t(now));
      set_recorder(std::make_unique<FlightRecorder>(record_dir + "/comm", rank, size, run));
    }
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
  return std::shared_ptr<Group>(new Group(name, ranks, int(own - ranks.begin())));
}

std::shared_ptr<Group> World::all(const std::string& name) {
  std::vector<int64_t> ranks(static_cast<size_t>(size_));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group(name, ranks);
}

void World::poll() { poll_operations(); }
CommTotals World::totals() { return comm_totals(); }

}  // namespace weft
