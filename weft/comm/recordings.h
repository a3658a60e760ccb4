// What the flight recorders of a job's ranks have written down, read and compared: who waits for whom.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/base/env.h"
#include "weft/comm/ring_format.h"

namespace weft {

/// One rank's file.
struct Recording {
  struct Group {
    std::string name;
    std::vector<int64_t> ranks;
    uint64_t issued = 0;  // the last collective's sequence number
  };
  RingHeader header;
  std::vector<Group> groups;
  std::vector<OpRecord> records;  // by number, without one that was just being written

  int64_t rank() const { return header.rank; }
};

/// Throws Error saying what is wrong with the file `name`.
Recording parse_recording(std::string_view bytes, const std::string& name);

/// Those of the latest start, by rank; `dir` is a run's directory, or the one of the files. Throws Error if
/// there are none, and if one cannot be read.
std::vector<Recording> read_recordings(Env& env, const std::string& dir);

/// Who is behind, who waits for whom, and which ranks do not do the same, group by group. Times are seconds
/// before the last sign of life of any rank.
std::string compare_recordings(const std::vector<Recording>& recordings);

/// The same for the one group of this name and these ranks; "" if no rank knows it.
std::string compare_recordings(const std::vector<Recording>& recordings, const std::string& group,
                               const std::vector<int64_t>& ranks);

}  // namespace weft
