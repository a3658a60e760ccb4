// FlightRecorder: writes down what a rank communicates, into a mapped file that is there after the process is
// gone, however it went. recordings.h reads such files.
//
// Used by the thread that computes; the file may be read at any time, by any process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/comm/ring_format.h"

namespace weft {

class FlightRecorder {
 public:
  /// Creates DIR and DIR/rank-00003.ring, or overwrites it. `run` is common to the ranks of a job, and to no
  /// other job. Throws Error if it cannot, and if another process has the file: this rank was started twice.
  FlightRecorder(const std::string& dir, int64_t rank, int64_t ranks, uint64_t run);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;

  const std::string& dir() const { return dir_; }

  static constexpr uint32_t kUnlisted = UINT32_MAX;

  /// The group's place in the table: the same one for the same name and ranks. kUnlisted: it is full, and
  /// what this group does is not recorded.
  uint32_t add_group(const std::string& name, const std::vector<int64_t>& ranks);

  /// The sequence number of the group's last collective, in an earlier life of the group too.
  uint64_t last_sequence(uint32_t group) const;

  /// An operation that is issued now (number and issued are filled in here). Returns its number; 0: not
  /// recorded.
  uint64_t issued(OpRecord record);
  void done(uint64_t number);

  /// Notes that this rank runs, so that one which has stopped can be told from one that waits.
  void alive();

 private:
  std::string dir_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
  RingHeader* header_ = nullptr;  // the mapping
  RingGroup* groups_ = nullptr;
  uint32_t* members_ = nullptr;
  OpRecord* records_ = nullptr;
};

}  // namespace weft
