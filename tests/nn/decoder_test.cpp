// What must hold for any decoder: one curve for any cut into micro-batches, odd shapes, documents that do not
// see each other.
#include "weft/nn/decoder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "weft/base/error.h"

#include "tests/base/error_of.h"

namespace weft {
namespace {

ModelConfig small_model() {
  ModelConfig model;
  model.n_layers = 2, model.dim = 12, model.n_heads = 3, model.n_kv_heads = 1, model.head_dim = 4;
  model.ffn_dim = 7, model.vocab_size = 13, model.qk_norm = "head", model.qkv_bias = true;
  model.dropout = 0.1, model.attention_dropout = 0.1, model.final_softcap = 20;
  model.init_std = 0.3;
  resolve(&model);
  return model;
}

// Documents of the given lengths, as one flat micro-batch whose tokens start at global index `first`.
MicroBatch documents(const std::vector<int64_t>& lengths, int64_t first, int64_t vocab) {
  MicroBatch batch;
  batch.cu_seqlens = {0};
  std::vector<at::Tensor> positions;
  for (const int64_t length : lengths) {
    positions.push_back(at::arange(length, at::kLong));
    batch.cu_seqlens.push_back(batch.cu_seqlens.back() + length);
  }
  const int64_t tokens = batch.cu_seqlens.back();
  batch.positions = at::cat(positions);
  batch.index = at::arange(first, first + tokens, at::kLong);
  batch.tokens = (batch.index * 7 + batch.index.square() * 3) % vocab;
  batch.labels = ((batch.index + 1) * 5) % vocab;
  batch.labels.masked_fill_(batch.index % 4 == 1, kIgnoredLabel);
  return batch;
}

double targets_of(const std::vector<MicroBatch>& batches) {
  int64_t n = 0;
  for (const auto& batch : batches) n += (batch.labels >= 0).sum().item<int64_t>();
  return double(n);
}

// Loss and all gradients, one flat tensor.
std::pair<double, at::Tensor> run(Decoder& decoder, const std::vector<MicroBatch>& batches) {
  decoder.data_parallel().zero_grad();
  double loss = 0;
  const double normaliser = 1 / targets_of(batches);
  for (const auto& batch : batches)
    loss += decoder.forward_backward(batch, normaliser, {.z_loss = 1e-3, .chunk = 3}, 5, 2);
  std::vector<at::Tensor> grads;
  for (const auto& unit : decoder.units()) grads.push_back(unit->grads().clone());
  return {loss, at::cat(grads)};
}

TEST(Decoder, OneCurveForAnyCutIntoMicroBatches) {
  Decoder decoder(small_model(), at::kDouble);
  decoder.initialise(1);
  const int64_t v = 13;
  const auto [loss, grads] = run(decoder, {documents({5, 1, 7, 11}, 0, v)});
  const auto [cut_loss, cut_grads] =
      run(decoder, {documents({5}, 0, v), documents({1, 7}, 5, v), documents({11}, 13, v)});
  EXPECT_GT(loss, 1);
  EXPECT_NEAR(loss, cut_loss, 1e-13 * loss);
  EXPECT_LT((grads - cut_grads).abs().max().item<double>(), 1e-13 * grads.abs().max().item<double>());
}

TEST(Decoder, DropoutChangesWithTheStepAndIsOffInEvaluation) {
  Decoder decoder(small_model(), at::kDouble);
  decoder.initialise(1);
  const MicroBatch batch = documents({24}, 0, 13);
  const double one = decoder.forward_backward(batch, 1, {}, 5, 1),
               two = decoder.forward_backward(batch, 1, {}, 5, 2);
  EXPECT_NE(one, two);
  EXPECT_EQ(one, decoder.forward_backward(batch, 1, {}, 5, 1));
  ModelConfig without = small_model();
  without.dropout = without.attention_dropout = 0;
  Decoder plain(without, at::kDouble);
  plain.initialise(1);
  EXPECT_EQ(decoder.loss(batch, 1, 0), plain.loss(batch, 1, 0));
}

TEST(Decoder, DocumentsDoNotSeeEachOther) {
  Decoder decoder(small_model(), at::kDouble);
  decoder.initialise(1);
  const at::Tensor both = decoder.logits(documents({6, 9}, 0, 13));
  const at::Tensor first = decoder.logits(documents({6}, 0, 13)),
                   second = decoder.logits(documents({9}, 6, 13));
  EXPECT_LT((both - at::cat({first, second})).abs().max().item<double>(), 1e-13);
}

// The gradient of the whole model against central differences along random directions.
void check_gradient(const ModelConfig& model, const MicroBatch& batch) {
  Decoder decoder(model, at::kDouble);
  decoder.initialise(3);
  const double normaliser = 1 / targets_of({batch}), step = 1e-6;
  for (const auto& unit : decoder.units()) {
    const at::Tensor direction = at::sin(at::arange(unit->weights().numel(), at::kDouble) * 1.7);
    const auto loss_at = [&](double t) {
      unit->weights().add_(direction, t);
      const double loss = decoder.forward_backward(batch, normaliser, {.chunk = 3}, 5, 2);
      unit->weights().sub_(direction, t);
      return loss;
    };
    const double measured = (loss_at(step) - loss_at(-step)) / (2 * step);
    decoder.data_parallel().zero_grad();
    decoder.forward_backward(batch, normaliser, {.chunk = 3}, 5, 2);
    const double exact = (unit->grads() * direction).sum().item<double>();
    EXPECT_NEAR(measured, exact, 1e-7 * std::max(1.0, std::abs(exact))) << unit->name();
  }
}

TEST(Decoder, GradientIsRightAtOddShapes) {
  check_gradient(small_model(), documents({5, 1, 7}, 0, 13));
  ModelConfig one =
      small_model();  // one layer, one head, smallest head, tied, batch of one token with a target
  one.n_layers = one.n_heads = one.n_kv_heads = 1, one.dim = 2, one.head_dim = one.rope_dim = 2,
  one.ffn_dim = 1;
  check_gradient(one, documents({1}, 0, 13));
  ModelConfig gemma = small_model();
  gemma.norm_unit_offset = true, gemma.norm_placement = "sandwich", gemma.activation = "gelu_tanh";
  gemma.layer_types = {"sliding", "full"}, gemma.sliding_window = 3, gemma.attn_softcap = 5,
  gemma.tie_embeddings = true;
  gemma.embedding_multiplier = 3.5, gemma.rope_theta_sliding = 100, gemma.mlp_bias = gemma.o_bias = true;
  check_gradient(gemma, documents({11, 2}, 0, 13));
  ModelConfig untied = small_model();
  untied.tie_embeddings = false, untied.rope_layers = {true, false}, untied.vocab_size = 1;
  check_gradient(untied, documents({3}, 0, 1));
}

TEST(Decoder, GradientIsRightForEveryShape) {
  const MicroBatch batch = documents({7, 1, 5}, 0, 13);
  ModelConfig gpt2 = small_model();
  gpt2.norm = "layernorm", gpt2.position = "learned", gpt2.max_positions = 7, gpt2.mlp = "plain";
  gpt2.activation = "gelu_tanh", gpt2.o_bias = gpt2.mlp_bias = true, gpt2.qk_norm = "none";
  check_gradient(gpt2, batch);
  ModelConfig bloom = gpt2;
  bloom.position = "alibi", bloom.embedding_norm = true, bloom.activation = "gelu";
  check_gradient(bloom, batch);
  ModelConfig olmo2 = small_model();
  olmo2.norm_placement = "post", olmo2.qk_norm = "all_heads";
  check_gradient(olmo2, batch);
  ModelConfig granite = small_model();
  granite.embedding_multiplier = 3, granite.residual_multiplier = 0.3, granite.logits_multiplier = 0.4;
  check_gradient(granite, batch);
  ModelConfig phi = small_model();
  phi.rope_scaling = "longrope", phi.rope_original_seq_len = 5, phi.rope_dim = 2,
  phi.rope_attention_factor = 1.2;
  phi.rope_short_factors = {1.5}, phi.rope_long_factors = {4};
  check_gradient(phi, batch);
  for (const char* block : {"parallel", "parallel_shared_norm"}) {
    ModelConfig falcon = gpt2;
    falcon.position = "rope", falcon.block = block;
    check_gradient(falcon, batch);
  }
}

// Generation through the cache gives the same logits as one pass over the document.
TEST(Decoder, TheCacheAgreesWithOnePassForEveryKindOfPosition) {
  for (const char* position : {"rope", "learned", "alibi"}) {
    ModelConfig model = small_model();
    model.position = position, model.max_positions = 9;
    Decoder decoder(model, at::kDouble);
    decoder.initialise(4);
    const MicroBatch whole = documents({9}, 0, 13);
    const at::Tensor expected = decoder.logits(whole);
    auto caches = decoder.make_caches(9);
    EXPECT_LT(
        (decoder.next_logits(whole.tokens.narrow(0, 0, 4), caches) - expected[3]).abs().max().item<double>(),
        1e-13);
    for (int64_t t = 4; t < 9; ++t)
      EXPECT_LT((decoder.next_logits(whole.tokens.narrow(0, t, 1), caches) - expected[t])
                    .abs()
                    .max()
                    .item<double>(),
                1e-13)
          << position << " " << t;
  }
}

TEST(Decoder, LearnedPositionsEnd) {
  ModelConfig model = small_model();
  model.position = "learned", model.max_positions = 5;
  Decoder decoder(model, at::kDouble);
  EXPECT_THROW(decoder.logits(documents({2, 6}, 0, 13)), Error);
  EXPECT_THROW(decoder.make_caches(6), Error);
  EXPECT_NO_THROW(decoder.logits(documents({5, 5}, 0, 13)));
}

TEST(Decoder, ListsTheValuesOfTpThatDivideIt) {
  ModelConfig model = small_model();
  model.head_dim = 5;  // three heads: by itself the output projection, of 15 inputs, would object first
  ParamUnit unit("layer.0", at::kDouble, {0, 2, false});
  EXPECT_THAT(error_of([&] { DecoderLayer(model, 0, unit); }),
              testing::HasSubstr("parallel.tp = 2 does not divide the model: it must divide n_heads = 3"));
}

TEST(Decoder, KnowsWhereEachParamLies) {
  ModelConfig model = small_model();
  model.tie_embeddings = false;
  const Decoder decoder(model, at::kDouble);
  int seen = 0;
  for (const Param* param : decoder.params()) {
    const ParamSpec& spec = param->spec();
    const auto sharded = [&](int64_t dim) {
      ++seen;
      return spec.placement.kind == Placement::Kind::Shard && spec.placement.dim == dim;
    };
    const std::string& name = param->name();
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (has("q_proj") || has("up_proj") || has("lm_head") || has("embed")) {
      EXPECT_TRUE(sharded(0)) << name;
    }
    if (has("o_proj.weight")) {
      EXPECT_TRUE(sharded(1)) << name;
    }
    const bool head_norm = has("q_norm") || has("k_norm");
    EXPECT_EQ(spec.partial, head_norm ? Axes{Axis::tp} : Axes{}) << name;
  }
  EXPECT_EQ(seen, 2 * 4 + 2);  // per layer: q weight and bias, up, o; embedding and head
}

}  // namespace
}  // namespace weft
