// A trained or imported model, opened for use.
#pragma once

#include <memory>
#include <string>

#include "weft/base/env.h"
#include "weft/checkpoint/format.h"
#include "weft/data/tokenizer.h"
#include "weft/nn/decoder.h"

namespace weft {

struct LoadedModel {
  std::unique_ptr<Decoder> decoder;
  std::string tokenizer_path;    // empty: it came without one
  std::string hf_dir;            // the folder it comes from, so its tensors' names too; empty: none
  bool opens_documents = false;  // trained with a separator: the end-of-text token opens a document
};

/// `path` is a run directory, a checkpoint in one, or a HuggingFace folder; Error says what was looked for if
/// none. `kind` is kWeight or kAverage, which only some runs have: Error if this has none. The ranks of
/// `groups` divide it as `parallel` says.
LoadedModel load_model(Env& env, const std::string& path, const char* kind = kWeight,
                       const ParallelConfig& parallel = ParallelConfig(),
                       MeshGroups& groups = MeshGroups::alone());

/// A HuggingFace folder alone.
std::unique_ptr<Decoder> load_hf_model(Env& env, const std::string& dir, at::ScalarType dtype,
                                       const ParallelConfig& parallel = ParallelConfig(),
                                       MeshGroups& groups = MeshGroups::alone());

}  // namespace weft
