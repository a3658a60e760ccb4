#include "weft/comm/shared_memory.h"

#include <cerrno>
#include <cstring>
#include <random>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/comm/op_record.h"

namespace weft {
namespace {

constexpr int64_t kPage = 4096;

int64_t whole_pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::string name_of(uint64_t key) { return fmt::format("weft-{:016x}", key); }

std::string host_name() {
  char name[64] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

static_assert(std::atomic<uint64_t>::is_always_lock_free);

int64_t SharedMemory::counter_bytes(int ranks) { return whole_pages(ranks * int64_t{sizeof(Counters)}); }
int64_t SharedMemory::total_bytes(int ranks, int64_t bytes_each) {
  return counter_bytes(ranks) + ranks * whole_pages(bytes_each);
}

SharedMemory::SharedMemory(int descriptor, int ranks, int64_t bytes_each)
    : descriptor_(descriptor), ranks_(ranks), stride_(whole_pages(bytes_each)) {
  mapping_ = mmap(nullptr, size_t(total_bytes(ranks, bytes_each)), PROT_READ | PROT_WRITE, MAP_SHARED,
                  descriptor, 0);
  if (mapping_ != MAP_FAILED) return;
  const int reason = errno;
  close(descriptor_);
  fail("cannot map {} bytes of shared memory: {}", total_bytes(ranks, bytes_each), std::strerror(reason));
}

SharedMemory::~SharedMemory() {
  stop_sharing();
  munmap(mapping_, size_t(total_bytes(ranks_, stride_)));
}

void SharedMemory::stop_sharing() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

// New memory is zeroed, so its counters are 0.
std::shared_ptr<SharedMemory> SharedMemory::create(int ranks, int64_t bytes_each, Address* address) {
  std::random_device random;
  address->key = uint64_t{random()} << 32 | random();
  address->process = getpid();
  set_field(address->host, host_name());
  const int descriptor = memfd_create(name_of(address->key).c_str(), MFD_CLOEXEC);
  if (descriptor < 0) fail("cannot make shared memory: {}", std::strerror(errno));
  address->descriptor = descriptor;
  if (ftruncate(descriptor, total_bytes(ranks, bytes_each)) != 0) {
    const int reason = errno;
    close(descriptor);
    fail("cannot make {} bytes of shared memory: {}", total_bytes(ranks, bytes_each), std::strerror(reason));
  }
  return std::shared_ptr<SharedMemory>(new SharedMemory(descriptor, ranks, bytes_each));
}

std::shared_ptr<SharedMemory> SharedMemory::open(const Address& address, int ranks, int64_t bytes_each,
                                                 std::string* problem) {
  // What the descriptor is must be known before it is opened: on another machine it may be anything.
  const std::string path = fmt::format("/proc/{}/fd/{}", address.process, address.descriptor);
  const std::string expected = fmt::format("/memfd:{} (deleted)", name_of(address.key));
  char found[128] = {};
  int reason = readlink(path.c_str(), found, sizeof found - 1) < 0 ? errno : 0;
  int descriptor = -1;
  if (reason == 0 && found == expected) {
    descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) reason = errno;
  }
  if (descriptor < 0) {
    if (field_text(address.host) == host_name())
      *problem = fmt::format("{}: {}", path, reason == 0 ? "it is another process's" : std::strerror(reason));
    return nullptr;
  }
  try {
    return std::shared_ptr<SharedMemory>(new SharedMemory(descriptor, ranks, bytes_each));
  } catch (const Error& error) {
    *problem = error.what();
    return nullptr;
  }
}

}  // namespace weft
