// Sole use of a run directory.
#pragma once

#include <string>

namespace weft {

/// Holds RUN/.lock: two runs in one directory would overwrite each other's files. Freed when the process
/// ends, however it ends.
class RunLock {
 public:
  /// Throws Error if another process holds it.
  explicit RunLock(const std::string& run_dir);
  ~RunLock();
  RunLock(const RunLock&) = delete;

 private:
  int fd_;
};

/// Does a process hold the lock? Only looks: a run that starts at this moment is not disturbed.
bool run_is_locked(const std::string& run_dir);

/// The Error for who needs it.
[[noreturn]] void fail_because_locked(const std::string& run_dir);

}  // namespace weft
