// The format of RUN/comm/rank-00003.ring: what each rank has communicated lately (docs/formats.md). A
// header, a table of groups, the ranks of these groups, and a ring of records. Little-endian; every part has
// a fixed place, so that a file is whole at any moment.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "weft/comm/op_record.h"

namespace weft {

inline constexpr char kRingMagic[8] = {'W', 'E', 'F', 'T', 'R', 'I', 'N', 'G'};
inline constexpr uint32_t kRingVersion = 1;

struct RingHeader {
  char magic[8] = {};
  uint32_t version = 0;
  uint32_t rank = 0, ranks = 0;                               // of the job
  uint32_t max_groups = 0, max_members = 0, max_records = 0;  // the parts' lengths
  uint64_t run = 0;                                           // the same in all files of a start
  int64_t started = 0, alive = 0;                             // nanoseconds since 1970; alive: last seen
  uint32_t pid = 0;
  uint32_t groups = 0, members = 0;  // in use
  uint32_t reserved = 0;
  uint64_t written = 0;  // records so far
  char host[64] = {};
};
static_assert(sizeof(RingHeader) == 144);

struct RingGroup {
  char name[48] = {};
  uint32_t first = 0, size = 0;  // its ranks' place among the members
  uint64_t issued = 0;           // collectives: the last one's sequence number
};
static_assert(sizeof(RingGroup) == 64);

/// The bytes of a file.
inline uint64_t ring_bytes(const RingHeader& header) {
  return sizeof(RingHeader) + uint64_t{header.max_groups} * sizeof(RingGroup) +
         uint64_t{header.max_members} * sizeof(uint32_t) + uint64_t{header.max_records} * sizeof(OpRecord);
}

inline std::string ring_path(const std::string& dir, int64_t rank) {
  return fmt::format("{}/rank-{:05}.ring", dir, rank);
}

}  // namespace weft
