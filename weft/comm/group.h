// Group: ranks that communicate. Every byte that leaves a rank passes through here, so every operation is
// recorded (kind, bytes, group, begin, end): for the metrics, the trace, the flight recorder, and the tests
// that compare volumes with the papers' formulas.
//
// All ranks of a group issue the same operations on it in the same order. Operations are asynchronous: they
// return a Request, and until its wait() has returned the tensors are the operation's. Sums are
// deterministic: made in the order of the ranks, so a rank's copy has the same bits as every other's; bf16
// and fp16 are accumulated in fp32. Tensors are contiguous, on the CPU, of any dtype and of any size (beyond
// 2^31 elements too).
//
// Errors: a wait beyond comm.timeout, and under comm.check an operation that the other ranks do not issue,
// throw Error naming the operation, the group, and the ranks that differ or are missing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/config.h"
#include "weft/base/error.h"

namespace weft {

/// The ranks are not together any more: nothing that needs them all can follow, a checkpoint neither.
struct CommError : Error {
  using Error::Error;
};

enum class ReduceOp { sum, max };

class Operation;  // one that is under way
struct Channel;
struct OpRecord;
struct SharedPlace;

/// An operation that was issued. A copy is a handle on the same one; one that is dropped lets it
/// finish in its own time.
class Request {
 public:
  Request() = default;  // nothing to wait for
  explicit Request(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  bool test();  // moves it on, without waiting: is it done?
  void wait();

 private:
  std::shared_ptr<Operation> operation_;
};

/// What a rank sends to, or receives from, one other rank of the group.
struct P2P {
  enum class Kind { send, recv } kind;
  at::Tensor tensor;
  int peer;  // rank in the group
  int tag;   // tells messages between the same two ranks apart: [0, 2^15)
};

/// What one rank has sent over one group with one kind of operation. Bytes: those that left this rank, or, in
/// shared memory, those that it read of others, which are as many.
struct CommTotal {
  int64_t calls = 0, bytes = 0;
  double seconds = 0;  // spent issuing and waiting, by the thread that computes
};
using CommTotals = std::map<std::pair<std::string, std::string>, CommTotal>;  // by group name and operation

/// What has been added since.
CommTotals operator-(CommTotals now, const CommTotals& before);

class Group {
 public:
  ~Group();
  Group(const Group&) = delete;

  /// Of a process that shares nothing with others.
  static std::shared_ptr<Group> alone();

  const std::string& name() const { return name_; }             // "dp_shard"
  const std::vector<int64_t>& ranks() const { return ranks_; }  // of the job, in the order of the group
  int rank() const { return rank_; }                            // this process's place in it
  int size() const { return int(ranks_.size()); }

  /// tensor = the sum, or the maximum, of all ranks' tensors.
  Request all_reduce(at::Tensor tensor, ReduceOp op = ReduceOp::sum);
  /// output [size * n] = all ranks' inputs [n], one behind the other. input may be its own place in output.
  Request all_gather(at::Tensor output, at::Tensor input);
  /// output [n] = this rank's piece of the sum of all ranks' inputs [size * n]. output may be its own place
  /// in input; the rest of input is left undefined.
  Request reduce_scatter(at::Tensor output, at::Tensor input, ReduceOp op = ReduceOp::sum);
  /// Piece r of input goes to rank r, and piece r of output comes from it. Counts are in elements along dim
  /// 0.
  Request all_to_all(at::Tensor output, at::Tensor input, const std::vector<int64_t>& output_counts,
                     const std::vector<int64_t>& input_counts);
  Request broadcast(at::Tensor tensor, int root);
  Request send(at::Tensor tensor, int peer, int tag);
  Request recv(at::Tensor tensor, int peer, int tag);
  Request batch(std::vector<P2P> messages);  // all at once: isend, irecv
  void barrier();

  /// A zeroed buffer in which this group's all_gather, reduce_scatter and all_reduce are fastest: memory
  /// shared with the others where the group lies inside one node and comm.shared_memory is on, else ordinary
  /// memory. Collective: every rank asks for as much.
  at::Tensor new_buffer(int64_t numel, at::ScalarType dtype);

 private:
  friend class World;
  Group(std::string name, std::vector<int64_t> ranks, int rank);

  /// Issues a collective: `work` sends and receives.
  Request collective(const char* kind, OpRecord what, const std::optional<SharedPlace>& place,
                     const std::function<void(Operation*)>& work, const std::vector<int64_t>& counts = {});
  std::optional<SharedPlace> place_of(const at::Tensor& whole);

  std::string name_;
  std::vector<int64_t> ranks_;
  int rank_;
  std::shared_ptr<Channel> channel_;  // null: a group of one
};

/// Every rank's text, in the order of the group. Waits.
std::vector<std::string> all_gather(Group& group, const std::string& text);

/// The first rank's text. Waits.
std::string broadcast(Group& group, const std::string& text);

/// The sums of a few numbers over the group, in double. Waits.
std::vector<double> all_reduce(Group& group, const std::vector<double>& values, ReduceOp op = ReduceOp::sum);

/// This process's place in the job: alone, or one of those that MPI started.
class World {
 public:
  /// Joins the job; a later call only sets the comm keys. `record_dir`: where the flight recorder's files go;
  /// "": none. Throws Error if the environment speaks of ranks that cannot be reached.
  static World& join(const CommConfig& comm, const std::string& record_dir);

  /// The last thing that a process does which has not failed: waits for the others.
  void leave();

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }

  /// The group of these ranks of the job, this one among them. Collective over them.
  std::shared_ptr<Group> group(const std::string& name, const std::vector<int64_t>& ranks);
  std::shared_ptr<Group> all(const std::string& name);

  /// Moves on what is under way. Called between ops.
  static void poll();

  static CommTotals totals();

 private:
  World(int64_t rank, int64_t size) : rank_(rank), size_(size) {}

  int64_t rank_, size_;
};

}  // namespace weft
