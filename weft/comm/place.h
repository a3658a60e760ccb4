// Place: what the environment says of this process's part in a job, before any library is asked. MPI's
// variables win over torchrun's, those over Slurm's: `mpirun` inside a Slurm job inherits SLURM_PROCID=0.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace weft {

enum class Launcher { none, mpi, torchrun, slurm };

struct Place {
  Launcher launcher = Launcher::none;
  int64_t rank = 0;
  int64_t size = 1;            // ranks of the job; 0: only MPI itself knows (PMIX_RANK alone)
  int64_t local_size = 1;      // ranks on this machine
  std::string size_from = {};  // the variable that told the size, with its value: "OMPI_COMM_WORLD_SIZE = 4"
};

/// A variable's value; nullptr: it is not set.
using Environment = std::function<const char*(const char*)>;

/// Throws Error naming the variable and its value if what is set is no rank of any job.
Place find_place(const Environment& environment);
Place find_place();  // of this process

/// Throws Error with the remedy if ranks were started in a way that lets them not communicate.
void check_can_communicate(const Place& place);

/// For a process that begins a job of its own: throws Error if it is a rank of an MPI job already, and
/// forgets what other launchers have said.
void begin_own_job();

/// Cores that this process may use, and threads for a rank so that the ranks on this machine share its cores:
/// no fewer than one, no more than the rank is bound to.
int64_t usable_cores();
int64_t threads_per_rank(const Place& place);

}  // namespace weft
