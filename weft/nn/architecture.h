// What a decoder is made of, by the name in model.architecture. "decoder" is built in; a library in
// model.plugins adds others, from blocks of its own and of this library (docs/extending.md).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/config.h"
#include "weft/nn/block.h"
#include "weft/nn/embedding.h"
#include "weft/nn/head.h"

namespace weft {

using NewUnit = std::function<ParamUnit&(const std::string& name)>;

/// The blocks, embedding first, and the head, each with a unit of its own. A param belongs to one of them;
/// only the embedding's matrix may be shared, with the head (model.tie_embeddings).
class Architecture {
 public:
  explicit Architecture(NewUnit new_unit) : new_unit_(std::move(new_unit)) {}

  /// The next block: B(args..., its unit).
  template <class B, class... Args>
  B& add(const std::string& unit, const Args&... args) {
    blocks_.push_back(std::make_unique<B>(args..., new_unit_(unit)));
    return static_cast<B&>(*blocks_.back());
  }

  /// The head, behind the last block.
  void add_head(const ModelConfig& model, Param& embedding) {
    head_ = std::make_unique<Head>(model, embedding, new_unit_("head"));
  }

  const std::vector<std::unique_ptr<Block>>& blocks() const { return blocks_; }
  const Head* head() const { return head_.get(); }  // null until add_head()

 private:
  NewUnit new_unit_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<Head> head_;
};

/// Fills an empty architecture.
using ArchitectureBuilder = std::function<void(const ModelConfig& model, Architecture& all)>;

/// Embedding, model.n_layers layers, Layer(model, index, unit), and head.
template <class Layer>
void stack_of(const ModelConfig& model, Architecture& all) {
  Param& tokens = all.add<Embedding>("embedding", model).tokens();
  for (int64_t i = 0; i < model.n_layers; ++i) all.add<Layer>(fmt::format("layer.{}", i), model, i);
  all.add_head(model, tokens);
}

/// Adds an architecture. Returns true, so that a plug-in can register while it is loaded:
///   const bool registered = weft::register_architecture("mine", build);
bool register_architecture(const std::string& name, ArchitectureBuilder build);

/// Builds model.architecture, after loading model.plugins. Throws Error where one cannot be loaded, none of
/// them registers it, or it lacks its blocks or head.
Architecture build_architecture(const ModelConfig& model, const NewUnit& new_unit);

}  // namespace weft
