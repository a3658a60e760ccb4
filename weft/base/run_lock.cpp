#include "weft/base/run_lock.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "weft/base/error.h"

namespace weft {
namespace {

std::string lock_path(const std::string& run_dir) { return run_dir + "/.lock"; }

// A lock of the open file, not of the process (fcntl(2), "open file description locks"): unlike flock's it
// can be asked for without taking it.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

RunLock::RunLock(const std::string& run_dir) {
  const std::string path = lock_path(run_dir);
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("cannot write in the run directory {}: {}", run_dir, std::strerror(errno));
  struct flock lock = whole_file();
  if (fcntl(fd_, F_OFD_SETLK, &lock) != 0) {
    const int reason = errno;
    close(fd_);
    if (reason != EAGAIN && reason != EACCES) fail("cannot lock {}: {}", path, std::strerror(reason));
    fail_because_locked(run_dir);
  }
}

RunLock::~RunLock() { close(fd_); }

bool run_is_locked(const std::string& run_dir) {
  const int fd = open(lock_path(run_dir).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct flock lock = whole_file();
  const bool asked = fcntl(fd, F_OFD_GETLK, &lock) == 0;
  close(fd);
  return asked && lock.l_type != F_UNLCK;
}

void fail_because_locked(const std::string& run_dir) {
  fail("another process is training in {}: wait for it, or choose another log.run_dir", run_dir);
}

}  // namespace weft
