// The job that the tests run in.
#pragma once

#include <cstdlib>
#include <string>

#include <unistd.h>

#include <gtest/gtest.h>

#include "weft/comm/group.h"

namespace weft {

/// Tests run with the comm keys that find errors.
inline CommConfig test_comm() {
  CommConfig comm;
  if (const char* progress = std::getenv("WEFT_TEST_COMM_PROGRESS")) comm.progress = progress;
  comm.timeout = 60;
  comm.check = true;
  return comm;
}

/// Where the ranks' flight recorders write: their parent is the same.
inline std::string record_dir() { return testing::TempDir() + "weft_mpi_tests." + std::to_string(getppid()); }

/// Joins on the first call; each later one sets the comm keys anew.
inline World& world(const CommConfig& comm = test_comm()) { return World::join(comm, record_dir()); }

inline std::shared_ptr<Group> everyone(const std::string& name = "everyone") { return world().all(name); }

}  // namespace weft
