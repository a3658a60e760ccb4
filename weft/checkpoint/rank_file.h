// A rank's part of a checkpoint: the file with its shards, and what the first rank must know of it to write
// the index. Nothing here communicates.
#pragma once

#include <string>
#include <vector>

#include "weft/base/env.h"
#include "weft/checkpoint/checkpoint.h"

namespace weft {

struct RankFile {
  struct Part {
    TensorBox box;
    GlobalTensor whole;
  };
  CheckpointFile file;
  std::vector<Part> parts;
};

/// Writes the file of `rank` into `dir`, syncs and verifies it. Each part becomes as few tensors as there are
/// boxes in it.
RankFile write_rank_file(Env& env, const std::string& dir, int64_t rank,
                         const std::vector<StateTensor>& tensors);

/// As one rank tells it another.
std::string to_text(const RankFile& file);
RankFile parse_rank_file(const std::string& text);

/// Enters the files of all ranks and their tensors in the index. Throws Error unless the parts of each tensor
/// tile it.
void enter(const std::vector<RankFile>& files, Checkpoint* checkpoint);

/// Reads every byte of a file in `dir`. Throws Error if it is missing, short or damaged.
void verify(Env& env, const std::string& dir, const CheckpointFile& expected);

}  // namespace weft
