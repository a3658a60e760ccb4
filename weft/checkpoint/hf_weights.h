// Weights of a HuggingFace folder.
#pragma once

#include <string>
#include <vector>

#include "weft/base/env.h"
#include "weft/param/param.h"

namespace weft {

/// Fills the params from `dir`/model.safetensors, or from the shards that `dir`/model.safetensors.index.json
/// lists. F64, F32, F16 and BF16 are read into the params' dtype (rounded to nearest where it is narrower).
/// Rotary frequencies, and an lm_head.weight that the model ties to its embedding, are left out.
/// Throws one Error listing every tensor that is missing, unexpected, or of the wrong shape or dtype.
void load_hf_weights(Env& env, const std::string& dir, const std::vector<Param*>& params);

}  // namespace weft
