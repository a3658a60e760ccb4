// Checkpoints: the whole state of a training run on disk, in ROOT/step-00000100/ (format:
// docs/checkpoint-format.md). Every rank writes a file of its shards; whatever mesh and ZeRO stage wrote a
// checkpoint, any other can load it.
//
// A directory of that name exists only once all its bytes were written, synced, read back and found right;
// only then may an older one go. So whatever happens, and at whatever moment, the newest checkpoint before it
// stays usable.
//
// Functions that take a Group are called by all its ranks together, with the same arguments but for what a
// rank holds, and return the same on all: an Error on any of them is thrown by all, naming the rank. What it
// means that the ranks are not together any more, CommError, passes through as it is.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/env.h"
#include "weft/checkpoint/format.h"
#include "weft/comm/group.h"
#include "weft/param/param.h"

namespace weft {

/// A rank's part of one tensor of the training state: kWeight, or of the optimizer's ("exp_avg"). The tensor
/// is identified by kind and name of the param.
struct StateTensor {
  std::string kind;
  const Param* param;
  int64_t begin;    // of the elements of the param's local piece, in row-major order: the first that is here
  at::Tensor data;  // [numel], perhaps 0; contiguous, on the CPU, fp32 or fp64
};

/// Saves, then deletes all but the `keep_last` newest up to this one (0: keeps all). A checkpoint of the same
/// step is replaced. Later steps, which a run that went back left behind, are never touched. The ranks'
/// `tensors` tile those of the whole. `state` comes back exactly (int64, uint64 and finite doubles). Throws
/// Error with path and reason (disk full, ...); the earlier checkpoints are then as they were.
void save_checkpoint(Env& env, const std::string& root, int64_t step, const nlohmann::json& state,
                     const std::vector<StateTensor>& tensors, int64_t keep_last,
                     Group& group = *Group::alone());

/// Reads the index of one checkpoint and verifies every byte of its files, which the ranks divide among them.
/// Throws Error naming the first missing, short or damaged file and what is wrong.
Checkpoint open_checkpoint(Env& env, const std::string& dir, Group& group = *Group::alone());

/// The newest intact checkpoint in `root`, verified; nothing if there is none at all. `warn` gets one line
/// for each newer one that is damaged. Throws Error if all are damaged, NewerFormat if the newest is too new
/// for this weft.
std::optional<Checkpoint> find_checkpoint(Env& env, const std::string& root,
                                          const std::function<void(const std::string&)>& warn,
                                          Group& group = *Group::alone());

/// Fills `into`, this rank's part, from a verified checkpoint, whatever pieces and files its tensors lie in,
/// and reads no others. State that `into` does not ask for is left out, but every param in the checkpoint
/// must be one of the model's: so a rank lists all of the model's params, with no elements where it has none.
/// Throws one Error listing every tensor that is missing, of a param that the model has not, or of another
/// shape or dtype than the model's.
void load_checkpoint(Env& env, const Checkpoint& checkpoint, const std::vector<StateTensor>& into);

/// The params' weights alone, this rank's shards of the masters, for generation; or with kAverage their
/// average.
void load_weights(Env& env, const Checkpoint& checkpoint, const std::vector<Param*>& params,
                  const char* kind = kWeight);

}  // namespace weft
