// Frozen params take no gradient, and the others' stay what they were.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "weft/nn/decoder.h"
#include "weft/optim/update_rule.h"

namespace weft {
namespace {

class Frozen : public testing::Test {
 protected:
  Frozen() {
    model_.n_layers = 3, model_.dim = 12, model_.n_heads = 3, model_.n_kv_heads = 1, model_.ffn_dim = 20;
    model_.vocab_size = 17, model_.norm = "layernorm", model_.qk_norm = "head", model_.qkv_bias = true;
    model_.position = "learned", model_.max_positions = 9;
  }

  // Gradients of all params, in order, when the optimizer freezes what matches.
  std::vector<at::Tensor> gradients(const std::vector<std::string>& freeze) {
    ModelConfig model = model_;
    resolve(&model);
    decoder_ = std::make_unique<Decoder>(model, at::kDouble);
    decoder_->initialise(3);
    OptimConfig optim;
    optim.freeze = freeze;
    set_update_rules(optim, decoder_->params());
    const at::Tensor ids = (at::arange(18, at::kLong) * 5).remainder(17).view({2, 9});
    loss_ = decoder_->forward_backward(micro_batch_of_rows(ids), 1.0 / 16, {}, 0, 1);
    std::vector<at::Tensor> grads;
    for (const Param* param : decoder_->params()) grads.push_back(param->grad().clone());
    return grads;
  }

  void check(const std::vector<std::string>& freeze) {
    const auto whole = gradients({});
    const double loss = loss_;
    const auto part = gradients(freeze);
    EXPECT_EQ(loss_, loss);
    for (size_t i = 0; i < whole.size(); ++i) {
      const Param& param = *decoder_->params()[i];
      const double largest = whole[i].abs().max().item<double>();
      const double error = (part[i] - whole[i]).abs().max().item<double>();
      EXPECT_LE(error, param.trainable() ? 1e-14 * largest : largest) << param.name();
      EXPECT_EQ(part[i].abs().max().item<double>() == 0, !param.trainable()) << param.name();
    }
  }

  ModelConfig model_;
  std::unique_ptr<Decoder> decoder_;
  double loss_ = 0;
};

TEST_F(Frozen, EveryOpLeavesOutWhatIsFrozen) {
  check({"bias"});                         // one of two params of an op, in every op that has biases
  check({"weight"});                       // the other
  check({"k_proj", "up_proj", "q_norm"});  // parts of fused matrices
}

TEST_F(Frozen, TheHeadAndTheTablesToo) {
  check({"embed_tokens", "embed_positions"});  // tied: the head as well
  model_.tie_embeddings = false;
  check({"embed_tokens"});
  check({"lm_head"});
  check({"lm_head", "embed"});
}

TEST_F(Frozen, BackwardEndsAtTheFirstTrainedBlock) {
  model_.tie_embeddings = false;
  check({"embed", "layers.[01]"});
  EXPECT_EQ(decoder_->first_trainable_unit(), 3u);
  check({"embed", "layers"});
  EXPECT_EQ(decoder_->first_trainable_unit(), 4u);
  gradients({});
  EXPECT_EQ(decoder_->first_trainable_unit(), 0u);
}

}  // namespace
}  // namespace weft
