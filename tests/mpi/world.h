// The job that the tests run in.
#pragma once

#include <cstdlib>
#include <numeric>
#include <vector>

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

/// Joins on the first call; each later one sets the comm keys anew.
inline World& world(const CommConfig& comm = test_comm()) { return World::join(comm, ""); }

inline std::shared_ptr<Group> everyone(const std::string& name = "everyone") {
  std::vector<int64_t> ranks(size_t(world().size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return world().group(name, ranks);
}

}  // namespace weft
