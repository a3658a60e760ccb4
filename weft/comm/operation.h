// An operation of a group that is under way: messages, and what follows when they are in.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/comm/mpi_link.h"

namespace weft {

class Operation {
 public:
  Operation(std::string group, const char* kind, MpiLink& link, int tag)
      : group_(std::move(group)), kind_(kind), link_(link), tag_(tag) {}

  // What it consists of: messages, and then local work that may send more. Tensors are kept until it is done.
  void send(const at::Tensor& tensor, int peer, int tag = -1);
  void receive(const at::Tensor& tensor, int peer, int tag = -1);
  void then(std::function<void()> work) { next_.push_back(std::move(work)); }

  /// Moves it on, on the thread that computes; is it done?
  bool test();
  /// Tests the messages only: for a progress thread.
  void progress();
  /// Until it is done. Throws CommError after the timeout.
  void wait();

  const std::string& group() const { return group_; }
  const char* kind() const { return kind_; }

 private:
  std::string group_;
  const char* kind_;
  MpiLink& link_;
  int tag_;
  std::mutex mutex_;  // of the messages, against the progress thread
  std::vector<Message> messages_;
  std::exception_ptr error_;
  std::deque<std::function<void()>> next_;
  std::vector<at::Tensor> kept_;
  bool done_ = false;
};

/// Enters it among those that World::poll and the progress thread move on.
void enter(std::shared_ptr<Operation> operation);

}  // namespace weft
