// The first block of a model: token embedding, learned positions, norm and dropout.
#pragma once

#include <optional>

#include "weft/base/config.h"
#include "weft/nn/layers.h"

namespace weft {

/// Vocabulary-parallel matrix [vocab_size, dim].
ParamSpec vocab_matrix(const ModelConfig& model, const std::string& name);

/// Error if there are learned positions, but fewer than `length`.
void check_length(const ModelConfig& model, int64_t length);

class Embedding : public Block {
 public:
  Embedding(const ModelConfig& model, ParamUnit& unit);
  at::Tensor forward(const at::Tensor& x, const PassContext& context) const override;
  bool takes_next_tokens() const override { return true; }
  bool backward_reads_weights() const override { return norm_.has_value(); }
  Param& tokens() const { return *tokens_; }  // the matrix

 private:
  ModelConfig model_;
  Param* tokens_;
  Param* positions_ = nullptr;  // learned positions only
  std::optional<Norm> norm_;
};

}  // namespace weft
