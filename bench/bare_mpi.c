/* The operations of `weft bench comm`, as a program that calls MPI and nothing else: what the machine gives. The table
 * has the same columns, and its times are taken in the same way.
 *   mpirun -np 2 bare_mpi [MIN_BYTES MAX_BYTES FACTOR] */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kTimes = 5 };
static const double kSeconds = 0.05;

static int rank, ranks;
static float *whole, *received;

static void all_reduce(int numel) { MPI_Allreduce(MPI_IN_PLACE, whole, numel, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static void all_gather(int numel) {
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, numel / ranks, MPI_FLOAT, MPI_COMM_WORLD);
}
static void reduce_scatter(int numel) {
  MPI_Reduce_scatter_block(whole, received, numel / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void all_to_all(int numel) {
  MPI_Alltoall(whole, numel / ranks, MPI_FLOAT, received, numel / ranks, MPI_FLOAT, MPI_COMM_WORLD);
}
static void broadcast(int numel) { MPI_Bcast(whole, numel, MPI_FLOAT, 0, MPI_COMM_WORLD); }
static void send_recv(int numel) { /* to and fro between the first two ranks */
  if (rank == 0) {
    MPI_Send(whole, numel, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(whole, numel, MPI_FLOAT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (rank == 1) {
    MPI_Recv(whole, numel, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(whole, numel, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
  }
}

/* Seconds that one takes, on the slowest rank. */
static double time_of(void (*once)(int), int numel, long turns) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (long turn = 0; turn < turns; ++turn) once(numel);
  double seconds = (MPI_Wtime() - begin) / (double)turns, slowest;
  MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

static void measure(const char *name, void (*once)(int), double bus_factor, int numel) {
  for (int i = 0; i < 3; ++i) once(numel);
  const double estimate = time_of(once, numel, 3);
  long turns = (long)(kSeconds / estimate);
  if (turns < 1) turns = 1;
  if (turns > 100000) turns = 100000;
  double best = 1e30;
  for (int i = 0; i < kTimes; ++i) {
    const double seconds = time_of(once, numel, turns);
    if (seconds < best) best = seconds;
  }
  if (once == send_recv) best /= 2;
  const double algbw = numel * 4.0 / best * 1e-9;
  if (rank == 0)
    printf("%-16s%-10s%12ld%12.1f%10.2f%10.2f\n", name, "bare_mpi", numel * 4L, best * 1e6, algbw, algbw * bus_factor);
  fflush(stdout);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const long least = argc > 1 ? atol(argv[1]) : 8, most = argc > 2 ? atol(argv[2]) : 64 << 20;
  const long factor = argc > 3 ? atol(argv[3]) : 8;
  const double others = (double)(ranks - 1) / ranks;
  const struct {
    const char *name;
    void (*once)(int);
    double bus_factor;
  } kinds[] = {{"all_reduce", all_reduce, 2 * others}, {"all_gather", all_gather, others},
               {"reduce_scatter", reduce_scatter, others}, {"all_to_all", all_to_all, others},
               {"broadcast", broadcast, 1}, {"send_recv", send_recv, 1}};
  whole = calloc((size_t)most / 4 + (size_t)ranks, 4);
  received = calloc((size_t)most / 4 + (size_t)ranks, 4);
  if (rank == 0) printf("%-16s%-10s%12s%12s%10s%10s\n", "operation", "path", "bytes", "us", "algbw", "busbw");
  for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; ++kind) {
    int last = 0;
    for (long bytes = least; bytes <= most; bytes *= factor) {
      const long piece = bytes / 4 / ranks > 0 ? bytes / 4 / ranks : 1;
      const int numel = (int)(piece * ranks);
      if (numel != last) measure(kinds[kind].name, kinds[kind].once, kinds[kind].bus_factor, numel);
      last = numel;
    }
  }
  MPI_Finalize();
  return 0;
}
