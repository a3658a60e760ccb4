// A rank's tie to its supervisor, the `weft … --ranks N` that started the job (see supervisor.h). It is a
// socket: the supervisor learns who died and what went wrong; the rank learns of the supervisor's end, and
// gets its outputs through it (the first rank the supervisor's own, so a terminal stays a terminal).
//
// The thin executable and libweft each have a copy of this file's code, so what they share lies in the
// environment.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

inline constexpr const char* kSupervisorVariable = "WEFT_SUPERVISOR";  // the name of the socket

/// What ended a rank, as it is told to the supervisor.
enum class Failure : char {
  error = 'e',     // what the user can mend
  internal = 'i',  // our mistake
  comm = 'c',      // other ranks are gone: never the cause if there is another
};

/// "rank 2: TEXT", or TEXT alone where it begins with a rank: what all ranks find together names whose it is.
std::string with_rank(int64_t rank, const std::string& text);

/// The exit status of a process that fails in this way.
int exit_status(Failure failure);

/// At the start of main. If this process is a rank that a supervisor started: takes its outputs from there,
/// and from now on ends the process at once when the supervisor or mpirun is gone. Else does nothing.
void join_supervisor();

/// Says what ended this process, where the user sees it; under a supervisor, which picks the cause from what
/// the ranks say, waits to be ended by it. Returns the exit status.
int report_failure(Failure failure, const std::string& text);

}  // namespace weft
