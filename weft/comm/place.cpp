#include "weft/comm/place.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include <sched.h>
#include <unistd.h>

#include "weft/base/error.h"

namespace weft {
namespace {

/// The names under which a launcher tells what a Place holds; nullptr: it does not.
struct Names {
  Launcher launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Names kNames[] = {
    {Launcher::mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {Launcher::mpi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {Launcher::mpi, "PMIX_RANK", nullptr, nullptr, nullptr},
    {Launcher::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    // A shell that salloc opens is a step of one task within an allocation of several, and has both sizes.
    {Launcher::slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr, nullptr},
    {Launcher::slurm, "SLURM_PROCID", "SLURM_NTASKS", nullptr, nullptr},
};

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  bool has(const char* name) const { return name && environment_(name); }

  /// The value of a variable that must lie in [low, high]; `fallback` if it is not set.
  int64_t number(const char* name, int64_t low, int64_t high, int64_t fallback) const {
    if (!has(name)) return fallback;
    const std::string_view text = environment_(name);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
      fail(
          "the environment says {} = \"{}\", and a number from {} to {} was expected: it is no rank of a "
          "job; "
          "start it afresh (`weft train --ranks N`, mpirun or srun), or unset the variable",
          name, text, low, high);
    return value;
  }

 private:
  const Environment& environment_;
};

constexpr int64_t kMostRanks = 1 << 24;

Place read_place(const Reader& reader, const Names& names) {
  Place place{.launcher = names.launcher};
  place.size = names.size ? reader.number(names.size, 1, kMostRanks, 0) : 0;
  if (place.size > 0) place.size_from = fmt::format("{} = {}", names.size, place.size);
  const int64_t last = (place.size > 0 ? place.size : kMostRanks) - 1;
  if (!reader.has(names.rank))
    fail("the environment says {}, but not which of these ranks this is: {} is not set", place.size_from,
         names.rank);
  place.rank = reader.number(names.rank, 0, last, 0);
  place.local_size = reader.number(names.local_size, 1, last + 1, 1);
  reader.number(names.local_rank, 0, reader.has(names.local_size) ? place.local_size - 1 : last, 0);
  return place;
}

/// Cores that a process (0: this one) may run on.
int64_t cores_of(pid_t process) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(process, sizeof cores, &cores) != 0) return sysconf(_SC_NPROCESSORS_ONLN);
  return CPU_COUNT(&cores);
}

}  // namespace

Place find_place(const Environment& environment) {
  const Reader reader(environment);
  for (const Names& names : kNames) {
    // Launchers set rank and size. An MPI size alone is a job torn apart; other tools' names may stand alone.
    const bool has_size = !names.size || reader.has(names.size), has_rank = reader.has(names.rank);
    const bool is_mpi = names.launcher == Launcher::mpi;
    if (has_size && (has_rank || (is_mpi && names.size))) return read_place(reader, names);
    if (is_mpi && has_rank)
      fail("the environment says {} = \"{}\", but not of how many ranks: {} is not set", names.rank,
           environment(names.rank), names.size);
  }
  return {};
}

Place find_place() {
  return find_place([](const char* name) { return std::getenv(name); });
}

void check_can_communicate(const Place& place) {
  if (place.size == 1) return;
  if (place.launcher == Launcher::torchrun)
    fail(
        "torchrun's variables ({}) are set, but on the CPU ranks find each other through MPI: start them "
        "with "
        "`weft train --ranks N`, or with mpirun or srun",
        place.size_from);
  if (place.launcher == Launcher::slurm)
    fail(
        "Slurm speaks of several tasks ({}), but they cannot find each other: start them with `srun "
        "--mpi=pmix` (or pmi2) or with mpirun; `weft train --ranks N` starts N ranks on this machine alone",
        place.size_from);
}

void begin_own_job() {
  if (const Place place = find_place(); place.launcher == Launcher::mpi)
    fail(
        "--ranks starts a job, and this process is already a rank of one that MPI started ({}): leave it out",
        place.size > 0 ? place.size_from : "PMIX_RANK is set");
  for (const Names& names : kNames)
    if (names.launcher != Launcher::mpi) unsetenv(names.rank), unsetenv(names.size);
}

int64_t usable_cores() { return cores_of(0); }

int64_t threads_per_rank(const Place& place) {
  // mpirun may have bound this rank to some cores; it itself has all those that the ranks share.
  const int64_t shared = place.local_size > 1 ? cores_of(getppid()) : cores_of(0);
  return std::min(cores_of(0), std::max<int64_t>(1, shared / place.local_size));
}

}  // namespace weft
