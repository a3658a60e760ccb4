#include "weft/train/process.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <limits>

#include <malloc.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <ATen/Parallel.h>

namespace weft {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

volatile std::sig_atomic_t stop_flag = 0;

void on_stop_signal(int signal) {
  stop_flag = 1;
  if (signal != SIGUSR1) std::signal(signal, SIG_DFL);
}

}  // namespace

void set_up_process(int64_t threads) {
  if (threads > 0) at::set_num_threads(int(threads));
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

void catch_stop_signals() {
  std::signal(SIGINT, on_stop_signal);
  std::signal(SIGTERM, on_stop_signal);
  std::signal(SIGUSR1, on_stop_signal);
  if (std::signal(SIGHUP, on_stop_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // nohup
  std::signal(SIGPIPE, SIG_IGN);  // `weft train … | head` must not end the run
}

bool stop_requested() { return stop_flag != 0; }

int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t free_bytes(const std::string& dir) {
  struct statvfs disk;
  return statvfs(dir.c_str(), &disk) == 0 ? int64_t(disk.f_bavail * disk.f_frsize) : kUnlimited;
}

int64_t file_size_limit() {
  rlimit limit;
  const bool limited = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? int64_t(limit.rlim_cur) : kUnlimited;
}

}  // namespace weft
