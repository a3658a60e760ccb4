#include "weft/comm/flight_recorder.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <span>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr uint32_t kGroups = 256, kRecords = 4096;

/// Room for the ranks of the groups of a mesh of five axes, each of which may be in it or not.
uint32_t members_for(int64_t ranks) { return uint32_t(std::max<int64_t>(4096, 32 * ranks)); }

int64_t now() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Readers must find a field either as it was or as it is.
template <class T>
void publish(T& field, T value) {
  std::atomic_ref<T>(field).store(value, std::memory_order_release);
}

/// Opens the file for this process alone, which its lock sees to (as RunLock's does).
int open_locked(const std::string& path, int64_t rank) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) fail("cannot write {}: {}", path, std::strerror(errno));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return fd;
  const int reason = errno;
  close(fd);
  if (reason != EAGAIN && reason != EACCES) fail("cannot lock {}: {}", path, std::strerror(reason));
  fail(
      "rank {} of this run was started twice: another process has {}. Wait for it or end it, or choose "
      "another log.run_dir.",
      rank, path);
}

}  // namespace

FlightRecorder::FlightRecorder(const std::string& dir, int64_t rank, int64_t ranks, uint64_t run)
    : dir_(dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) fail("cannot create {}: {}", dir, error.message());
  const std::string path = ring_path(dir, rank);
  fd_ = open_locked(path, rank);
  RingHeader header;
  std::ranges::copy(kRingMagic, header.magic);
  header.version = kRingVersion;
  header.rank = uint32_t(rank), header.ranks = uint32_t(ranks);
  header.max_groups = kGroups, header.max_members = members_for(ranks), header.max_records = kRecords;
  header.run = run;
  header.started = header.alive = now();
  header.pid = uint32_t(getpid());
  gethostname(header.host, sizeof header.host - 1);
  bytes_ = ring_bytes(header);
  // All of its blocks now: on a full disk a write into the mapping would end the process.
  int problem = ftruncate(fd_, 0) == 0 ? posix_fallocate(fd_, 0, off_t(bytes_)) : errno;
  void* mapping = MAP_FAILED;
  if (problem == 0) {
    mapping = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (mapping == MAP_FAILED) problem = errno;
  }
  if (problem != 0) {
    close(fd_);
    fail("cannot write {}: {}", path, std::strerror(problem));
  }
  header_ = new (mapping) RingHeader(header);
  groups_ = reinterpret_cast<RingGroup*>(header_ + 1);
  members_ = reinterpret_cast<uint32_t*>(groups_ + header.max_groups);
  records_ = reinterpret_cast<OpRecord*>(members_ + header.max_members);
}

FlightRecorder::~FlightRecorder() {
  munmap(header_, bytes_);
  close(fd_);
}

uint32_t FlightRecorder::add_group(const std::string& name, const std::vector<int64_t>& ranks) {
  RingGroup added;
  set_field(added.name, name);
  added.first = header_->members, added.size = uint32_t(ranks.size());
  for (uint32_t group = 0; group < header_->groups; ++group) {
    const RingGroup& listed = groups_[group];
    const std::span listed_ranks(members_ + listed.first, listed.size);
    if (field_text(listed.name) == field_text(added.name) && std::ranges::equal(listed_ranks, ranks))
      return group;
  }
  if (header_->groups == header_->max_groups || header_->max_members - header_->members < ranks.size())
    return kUnlisted;
  std::ranges::copy(ranks, members_ + added.first);
  groups_[header_->groups] = added;
  publish(header_->members, added.first + added.size);
  publish(header_->groups, header_->groups + 1);
  return header_->groups - 1;
}

uint64_t FlightRecorder::last_sequence(uint32_t group) const {
  return group == kUnlisted ? 0 : groups_[group].issued;
}

uint64_t FlightRecorder::issued(OpRecord record) {
  if (record.group == kUnlisted) return 0;
  const uint64_t number = header_->written + 1;
  OpRecord& place = records_[(number - 1) % header_->max_records];
  record.issued = now();
  record.number = record.check = 0;
  // One who reads it front to back meanwhile finds that number and check differ, or are 0.
  publish(place.number, uint64_t{0});
  publish(place.check, uint64_t{0});
  std::atomic_thread_fence(std::memory_order_seq_cst);
  place = record;
  publish(place.check, number);
  publish(place.number, number);
  publish(header_->written, number);
  if (record.sequence > 0) publish(groups_[record.group].issued, record.sequence);
  publish(header_->alive, record.issued);
  return number;
}

void FlightRecorder::done(uint64_t number) {
  if (number == 0) return;
  OpRecord& record = records_[(number - 1) % header_->max_records];
  if (record.number == number) publish(record.done, now());
}

void FlightRecorder::alive() { publish(header_->alive, now()); }

}  // namespace weft
