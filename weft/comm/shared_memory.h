// SharedMemory: a buffer of each rank of a group, in memory that all of them have mapped, so that they read
// each other's data where it lies. For groups inside one machine.
//
// The memory has no name in any file system: it is gone with its processes however they end, and takes no
// place in a container's /dev/shm. Ranks agree through counters, of which each rank writes its own: operation
// number t of a buffer has come to a point on a rank once that counter is t or more.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace weft {

class SharedMemory {
 public:
  /// One rank makes it, and tells the others how to find it.
  struct Address {
    int64_t process = 0, descriptor = 0;
    uint64_t key = 0;  // told apart from whatever else they may find there
    char host[64] = {};
  };
  static std::shared_ptr<SharedMemory> create(int ranks, int64_t bytes_each, Address* address);
  /// Null where it cannot be mapped. `problem`: why, if the rank that made it is on this machine.
  static std::shared_ptr<SharedMemory> open(const Address& address, int ranks, int64_t bytes_each,
                                            std::string* problem);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;

  /// The ranks have found it, or will not.
  void stop_sharing();

  char* buffer(int rank) const {
    return static_cast<char*>(mapping_) + counter_bytes(ranks_) + rank * stride_;
  }

  struct alignas(128) Counters {
    std::atomic<uint64_t> ready = 0;  // its data may be read
    std::atomic<uint64_t> sums = 0;   // so may the sums that it has made
    std::atomic<uint64_t> done = 0;   // it reads no more of others' data
  };
  Counters& counters(int rank) const { return static_cast<Counters*>(mapping_)[rank]; }

  uint64_t operations = 0;  // that this rank has issued

 private:
  SharedMemory(int descriptor, int ranks, int64_t bytes_each);
  static int64_t counter_bytes(int ranks);
  static int64_t total_bytes(int ranks, int64_t bytes_each);

  int descriptor_;
  int ranks_;
  int64_t stride_;
  void* mapping_;
};

}  // namespace weft
