// What a decoder is made of, by the name in model.architecture. "decoder" is built in; a library in
// model.plugins adds others, from blocks of its own and of this library (docs/extending.md).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/config.h"
#include "weft/nn/block.h"
#include "weft/nn/head.h"

namespace weft {

/// The blocks, embedding first, and the head: each has the unit made for it by the builder's new_unit, in
/// this order.
struct Architecture {
  std::vector<std::unique_ptr<Block>> blocks;
  std::unique_ptr<Head> head;
};

using NewUnit = std::function<ParamUnit&(const std::string& name)>;
using LayerBuilder =
    std::function<std::unique_ptr<Block>(const ModelConfig& model, int64_t layer, ParamUnit& unit)>;
using ArchitectureBuilder = std::function<Architecture(const ModelConfig& model, const NewUnit& new_unit)>;

/// Embedding, model.n_layers layers, head.
Architecture stack_of(const LayerBuilder& layer, const ModelConfig& model, const NewUnit& new_unit);

/// Adds an architecture. Returns true, so that a plug-in can register while it is loaded:
///   const bool registered = weft::register_architecture("mine", build);
bool register_architecture(const std::string& name, ArchitectureBuilder build);

/// Builds model.architecture, after loading model.plugins. Throws Error where one cannot be loaded or none of
/// them registers it.
Architecture build_architecture(const ModelConfig& model, const NewUnit& new_unit);

}  // namespace weft
