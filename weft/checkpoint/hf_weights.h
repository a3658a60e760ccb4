// Weights of a HuggingFace folder.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/env.h"
#include "weft/checkpoint/hf_names.h"
#include "weft/param/param.h"

namespace weft {

/// Fills the params' master weights, as far as this rank owns them, from `dir`/model.safetensors, or from the
/// shards that `dir`/model.safetensors.index.json lists, where `names` says they lie. F64, F32, F16 and BF16
/// are read into the params' dtype (rounded to nearest where it is narrower). Buffers that are no weights,
/// and an lm_head.weight that the model ties to its embedding, are left out. Throws one Error listing every
/// tensor that is missing, unexpected, or of the wrong shape or dtype.
void load_hf_weights(Env& env, const std::string& dir, const HfNames& names,
                     const std::vector<Param*>& params);

/// The inverse: what tensor_of gives for each param (its weight, its gradient), as the tensors of a
/// HuggingFace file.
std::vector<std::pair<std::string, at::Tensor>> hf_tensors(
    const HfNames& names, const std::vector<Param*>& params,
    const std::function<at::Tensor(const Param&)>& tensor_of);

}  // namespace weft
