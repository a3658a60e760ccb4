// A HuggingFace folder's config.json as a ModelConfig, in the spellings of transformers 4 (rope_theta,
// rope_scaling) and 5 (rope_parameters). Model types: llama, mistral, qwen2, qwen3, smollm3, gemma2,
// gemma3_text, olmo2, phi3, granite, starcoder2, gpt2, bloom, falcon. What is absent takes transformers'
// default for the model type. No torch here.
#pragma once

#include <string>

#include "weft/base/config.h"
#include "weft/base/env.h"

namespace weft {

struct HfModel {
  std::string type;    // model_type
  ModelConfig config;  // resolved
};

/// The shape of the model in `dir`/config.json, resolved. Dropouts are 0: they belong to training.
/// Throws Error naming the file, the key, its value and what is supported.
HfModel read_hf_model(Env& env, const std::string& dir);

/// If model.from_hf is set, replaces the shape by the folder's; init_std and the dropouts stay. Call it
/// before resolve().
void apply_from_hf(Config* config, Env& env = Env::system());

}  // namespace weft
