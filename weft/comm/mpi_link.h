// The one place that speaks MPI: point-to-point messages of bytes between the ranks of a communicator. All
// calls are non-blocking and made under one lock, so that a progress thread may make them too
// (MPI_THREAD_SERIALIZED).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#define OMPI_SKIP_MPICXX 1  // its C++ interface, long gone from the standard, would need a library more
#include <mpi.h>

namespace weft {

/// A message on its way.
struct Message {
  MPI_Request request;
  int expected;  // bytes to be received; -1: it is being sent
  int64_t peer;  // rank of the job
};

class MpiLink {
 public:
  /// Joins the job that a launcher started, or ends this process's part in it (all ranks together), if it has
  /// one.
  static void init();
  static void finalize();
  static std::string version();  // needs no job
  static int world_rank();
  static int world_size();

  /// The first rank's number, on every rank of the job.
  static uint64_t first_ranks(uint64_t number);

  /// Between these ranks of the job. Collective over them.
  explicit MpiLink(const std::vector<int64_t>& ranks);
  ~MpiLink();
  MpiLink(const MpiLink&) = delete;

  /// Messages beyond max_message() bytes travel in pieces. Received bytes must be as many as were sent.
  void send(const void* data, int64_t bytes, int peer, int tag, std::vector<Message>* messages);
  void receive(void* data, int64_t bytes, int peer, int tag, std::vector<Message>* messages);

  /// Moves all of them on: are they done? Done ones leave the list. Throws CommError for a message of another
  /// size than its receiver expects.
  static bool test(std::vector<Message>* messages);

  static int64_t& max_message();  // MPI counts in int; a test makes it small

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<int64_t> ranks_;
};

}  // namespace weft
