// An operation of a group that is under way: messages, and what follows when they are in.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/comm/group.h"
#include "weft/comm/mpi_link.h"
#include "weft/comm/op_record.h"
#include "weft/comm/shared_memory.h"

namespace weft {

/// What the operations of a group share; they may outlive it.
struct Channel {
  std::string name;
  std::vector<int64_t> ranks;  // of the job
  int rank;                    // this process's place among them
  MpiLink link;
  uint32_t recorded;         // its place in the flight recorder
  uint64_t recorded_before;  // the last sequence number of an earlier group of this name and these ranks
  uint64_t operations = 0;   // collectives so far

  /// The group's shared buffers, by where this rank's lies.
  struct Buffer {
    int number;  // 0, 1, … in the order in which they were made
    int64_t bytes;
    std::weak_ptr<SharedMemory> memory;
  };
  std::map<const char*, Buffer> buffers = {};
  int buffers_made = 0;

  std::map<const char*, CommTotal*> totals = {};  // by kind

  int size() const { return int(ranks.size()); }
  CommTotal& total(const char* kind);
};

class Operation {
 public:
  /// `kind` is of static storage.
  Operation(std::shared_ptr<Channel> channel, const char* kind, int tag);

  /// Enters what it does, or a message that it consists of, in the flight recorder.
  void record(const OpRecord& what);

  // What it consists of: messages, and then local work that may send more. Tensors are kept until it is done.
  void send(const at::Tensor& tensor, int peer, int tag = -1);
  void receive(const at::Tensor& tensor, int peer, int tag = -1);
  void then(std::function<void()> work) { next_.push_back({std::move(work), {}, {}, 0}); }
  /// What follows waits until all ranks have come to this point.
  using Counter = std::atomic<uint64_t> SharedMemory::Counters::*;
  void await(std::shared_ptr<SharedMemory> memory, Counter counter, uint64_t turn) {
    next_.push_back({{}, std::move(memory), counter, turn});
  }
  void count(int64_t bytes) { bytes_ += bytes, total_.bytes += bytes; }  // sent, or read of others' memory
  /// A message that belongs to no rank's data: it does not count as sent.
  void send_aside(const at::Tensor& tensor, int peer, int tag);

  /// Moves it on, on the thread that computes; is it done? Throws CommError, from then on each time.
  bool test();
  /// Tests the messages only: for a progress thread.
  void progress();
  /// Until it is done. Throws CommError after the timeout.
  void wait();

  const Channel& channel() const { return *channel_; }

 private:
  struct Step {
    std::function<void()> work;
    std::shared_ptr<SharedMemory> memory;  // null: nobody is waited for
    Counter counter;
    uint64_t turn;
    bool has_come(int peer) const {
      return !memory || (memory->counters(peer).*counter).load(std::memory_order_acquire) >= turn;
    }
  };

  void move_on();
  std::string title() const;
  std::string timeout_text();

  std::shared_ptr<Channel> channel_;
  const char* kind_;
  int tag_;
  CommTotal& total_;
  int64_t begin_, bytes_ = 0;      // of the trace's clock; sent so far
  OpRecord what_;                  // as recorded last
  std::vector<uint64_t> records_;  // their numbers
  std::mutex mutex_;               // of the messages, against the progress thread
  std::vector<Message> messages_;
  std::exception_ptr error_;
  std::deque<Step> next_;
  std::vector<at::Tensor> kept_;
  bool done_ = false;
};

}  // namespace weft
