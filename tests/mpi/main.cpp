// Runs the tests of this binary on every rank of an MPI job: each rank goes through the same tests in the
// same order. A test passes if it passes on all ranks; a rank that fails one prints its failures behind its
// number.
#include <cstdio>
#include <filesystem>

#include <gtest/gtest.h>

#include "weft/comm/mpi_link.h"

#include "tests/mpi/world.h"

namespace weft {
namespace {

/// Ends each test together, with one outcome.
class Together : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& info) override {
    if (world().size() == 1) return;
    int failed = info.result()->Failed(), failures = 0;
    MPI_Allreduce(&failed, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (failures > failed) ADD_FAILURE() << "failed on " << failures << " of " << world().size() << " ranks";
  }
};

/// What ranks other than the first print.
class FailuresOnly : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& part) override {
    if (part.failed())
      std::fprintf(stderr, "rank %lld: %s:%d: %s\n", static_cast<long long>(world().rank()),
                   part.file_name() ? part.file_name() : "", part.line_number(), part.message());
  }
};

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  weft::World& world = weft::world();
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (world.rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new weft::FailuresOnly);
  }
  listeners.Append(new weft::Together);
  const int status = RUN_ALL_TESTS();
  const int64_t rank = world.rank();
  world.leave();
  if (rank == 0) std::filesystem::remove_all(weft::record_dir());
  return status;
}
