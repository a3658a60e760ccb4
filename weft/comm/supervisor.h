// The supervisor: starts the ranks of a job on this machine and looks after them until the job's end.
//
// It runs mpirun in a session of its own, which starts this executable once a rank. The first rank writes to
// the supervisor's own outputs, the others to files. No torch, no MPI.
//  - Ctrl-C, SIGTERM and SIGHUP become SIGUSR1 to every rank, which asks them to stop in good order; the
//    second one ends all at once. (mpirun itself would kill the ranks one second after the first.)
//  - A rank that fails, dies or is killed ends the job within seconds. What happened first is the cause, and
//    that alone is printed, with its rank.
//  - If supervisor or mpirun is killed, the ranks end themselves (supervised.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

/// Runs `weft ARGUMENTS…` as `ranks` ranks, prints what goes wrong, and returns the exit status. Outputs of
/// the ranks behind the first: log_dir/rank-0001.log and so on, and mpirun's log_dir/mpirun.log. Throws Error
/// if the job cannot be started: a log_dir that cannot be written, no mpirun, or a process that is a rank of
/// a job already.
int run_job(int64_t ranks, const std::vector<std::string>& arguments, const std::string& log_dir);

}  // namespace weft
