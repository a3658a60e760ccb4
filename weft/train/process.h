// What a run asks of its process: threads, memory, signals.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

/// Sets the thread count (0: all cores, or what OMP_NUM_THREADS says) and keeps freed memory in the process:
/// a fresh 32 MB buffer would otherwise cost 8,000 page faults every time.
void set_up_process(int64_t threads);

/// From now on the first SIGINT, SIGTERM or SIGHUP only sets a flag; the same one again ends the process as
/// usual. So does SIGUSR1, which supervisors and batch systems send, however often it comes. A closed pipe on
/// the output is no reason to end.
void catch_stop_signals();
bool stop_requested();

int64_t resident_bytes();

/// What the file system of `dir` has free, and how large this process may make a file. Where there is no
/// limit, or none is known: the largest number.
int64_t free_bytes(const std::string& dir);
int64_t file_size_limit();

}  // namespace weft
