// RoPE parameters of config.json, in the spellings of transformers 4 (rope_theta, rope_scaling) and 5
// (rope_parameters). Private to the readers of config.json.
#pragma once

#include "weft/base/config.h"
#include "weft/checkpoint/hf_reader.h"

namespace weft {

/// `model` must have its dim and n_heads. Throws Error for what is not supported.
void read_rope(const HfReader& file, double default_theta, ModelConfig* model);

/// Gemma 3: sliding layers have a base of their own and are never scaled.
void read_gemma3_rope(const HfReader& file, double default_theta, ModelConfig* model);

}  // namespace weft
