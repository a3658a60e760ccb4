// weft info: the part that only libweft knows.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/csrc/api/include/torch/version.h>

#include "weft/commands/command.h"
#include "weft/comm/mpi_link.h"
#include "weft/entry.h"
#include "weft/train/process.h"

int weft_info() {
  return weft::guarded([] {
    weft::set_up_process(0);
    fmt::print("libtorch      {}\n", TORCH_VERSION);
    fmt::print("devices       CPU, {} threads\n", at::get_num_threads());
    fmt::print("SIMD          {}\n", at::get_cpu_capability());
    fmt::print("GEMM          {}\n", at::hasMKL() ? "MKL" : "OpenBLAS or Eigen");
    fmt::print("MPI           {}\n", weft::MpiLink::version());
    return 0;
  });
}
