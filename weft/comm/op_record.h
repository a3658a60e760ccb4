// OpRecord: what an operation of a group is. The flight recorder writes it down, and under comm.check ranks
// compare it.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace weft {

/// What an operation is, and where it stands: a record of the flight recorder's file.
struct OpRecord {
  uint64_t number = 0;     // 1, 2, … over all of the rank's; 0: none
  uint64_t sequence = 0;   // 1, 2, … over the collectives of the group; 0: a message between two ranks
  int64_t issued = 0;      // nanoseconds since 1970
  int64_t done = 0;        // the same; 0: under way
  int64_t numel = 0;       // of the whole: an all_gather's output, a reduce_scatter's input
  uint32_t group = 0;      // its place in the table
  int32_t peer = -1;       // the root, or a message's other end, as a rank of the group; -1: none
  int32_t tag = -1;        // of a message; -1: a collective
  int32_t buffer = -1;     // the group's shared buffer that it works in; -1: messages
  char kind[16] = {};      // "all_gather"
  char dtype[8] = {};      // "fp32"
  char reduction[8] = {};  // "sum"
  uint64_t check = 0;      // number again: they differ while it is being written
};
static_assert(sizeof(OpRecord) == 96);

/// "all_gather of 24 fp32", "broadcast of 3 int64 from 2", "send of 24 fp32 to 3 (tag 7)"; `ranks` of the
/// group: peers are named by their ranks in the job.
std::string describe(const OpRecord& record, const std::vector<int64_t>& ranks);

/// Do two ranks that issue these do the same? (They may send different amounts in an all_to_all.)
bool same_operation(const OpRecord& a, const OpRecord& b);

/// "ranks 0 and 1 issue all_gather of 24 fp32, but rank 2 barrier"; "" if all do the same. What most do, or
/// the first does, stands first.
std::string disagreement(const std::vector<std::pair<int64_t, OpRecord>>& by_rank,
                         const std::vector<int64_t>& ranks);

/// "rank 3", "ranks 0, 1 and 3", "ranks 0 to 7 and 9"
std::string ranks_text(std::vector<int64_t> ranks);

/// Text in a field: what does not fit is left out.
template <size_t size>
void set_field(char (&field)[size], const std::string& text) {
  text.copy(field, size - 1);
}
template <size_t size>
std::string field_text(const char (&field)[size]) {
  return {field, strnlen(field, size)};
}

}  // namespace weft
