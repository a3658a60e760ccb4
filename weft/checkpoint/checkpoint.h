// Checkpoints: the whole state of a training run on disk, in ROOT/step-00000100/ (format:
// docs/checkpoint-format.md).
//
// A directory of that name exists only once all its bytes were written, synced, read back and found right;
// only then may an older one go. So whatever happens, and at whatever moment, the newest checkpoint before it
// stays usable.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/env.h"
#include "weft/checkpoint/format.h"
#include "weft/param/param.h"

namespace weft {

/// One tensor of the training state: kWeight, or of the optimizer's ("exp_avg"). It is identified by kind and
/// name of the param; `data` views the param's elements in row-major order (contiguous, on the CPU, fp32 or
/// fp64).
struct StateTensor {
  std::string kind;
  const Param* param;
  at::Tensor data;
};

/// Saves, then deletes all but the `keep_last` newest up to this one (0: keeps all). A checkpoint of the same
/// step is replaced. Later steps, which a run that went back left behind, are never touched. `state` comes
/// back exactly (int64, uint64 and finite doubles). Throws Error with path and reason (disk full, ...); the
/// earlier checkpoints are then as they were.
void save_checkpoint(Env& env, const std::string& root, int64_t step, const nlohmann::json& state,
                     const std::vector<StateTensor>& tensors, int64_t keep_last);

/// Reads the index of one checkpoint and verifies every byte of its files.
/// Throws Error naming the first missing, short or damaged file and what is wrong.
Checkpoint open_checkpoint(Env& env, const std::string& dir);

/// The newest intact checkpoint in `root`, verified; nothing if there is none at all. `warn` gets one line
/// for each newer one that is damaged. Throws Error if all are damaged, NewerFormat if the newest is too new
/// for this weft.
std::optional<Checkpoint> find_checkpoint(Env& env, const std::string& root,
                                          const std::function<void(const std::string&)>& warn);

/// Fills `into` from a verified checkpoint, whatever pieces and files its tensors lie in. State that `into`
/// does not ask for is left out, but every param in the checkpoint must be one of the model's. Throws one
/// Error listing every tensor that is missing, of a param that the model has not, or of another shape or
/// dtype than the model's.
void load_checkpoint(Env& env, const Checkpoint& checkpoint, const std::vector<StateTensor>& into);

/// The params' weights alone, for generation; or with kAverage their average.
void load_weights(Env& env, const Checkpoint& checkpoint, const std::vector<Param*>& params,
                  const char* kind = kWeight);

}  // namespace weft
