#include "weft/nn/architecture.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "weft/nn/decoder.h"
#include "weft/ops/function.h"

#include "tests/base/error_of.h"

namespace weft {
namespace {

using testing::HasSubstr;

/// x + w * (mean of the document's tokens so far): mixes tokens, and keeps nothing for generation.
class RunningMean : public Block {
 public:
  RunningMean(const ModelConfig& model, int64_t layer, ParamUnit& unit)
      : w_(unit.add({.name = "model.layers." + std::to_string(layer) + ".w",
                     .shape = {model.dim},
                     .init = {0.3, 1}})) {}

  at::Tensor forward(const at::Tensor& x, const PassContext& context) const override {
    std::vector<at::Tensor> means;
    const std::vector<int64_t>& bounds = context.batch.cu_seqlens;
    for (size_t d = 0; d + 1 < bounds.size(); ++d) {
      const at::Tensor document = x.slice(0, bounds[d], bounds[d + 1]);
      const at::Tensor count = at::arange(1, document.size(0) + 1, x.options()).unsqueeze(1);
      means.push_back(document.cumsum(0) / count);
    }
    return x + at::tanh(at::cat(means)) * as_tensor(w_);
  }

 private:
  Param& w_;
};

const auto running_means = stack_of<RunningMean>;

const bool kRegistered = register_architecture("running-means", running_means) &&
                         register_architecture("two", running_means) &&
                         register_architecture("two", running_means) &&
                         register_architecture("headless", [](const ModelConfig& model, Architecture& all) {
                           all.add<Embedding>("embedding", model);
                         });

ModelConfig model_of(const std::string& architecture) {
  ModelConfig model;
  model.architecture = architecture;
  model.n_layers = 3, model.dim = 6, model.n_heads = 2, model.ffn_dim = 8, model.vocab_size = 11;
  model.init_std = 0.5;
  resolve(&model);
  return model;
}

TEST(Architecture, GenerationRunsBlocksThatKeepNothingOverAllTokens) {
  Decoder decoder(model_of("running-means"), at::kDouble);
  decoder.initialise(3);
  const at::Tensor ids = at::tensor({3, 1, 4, 1, 5, 9, 2}, at::kLong);
  const at::Tensor expected = decoder.logits(micro_batch_of_rows(ids.unsqueeze(0)));
  Caches caches = decoder.make_caches(7);
  const auto difference = [&](int64_t begin, int64_t end) {
    return (decoder.next_logits(ids.slice(0, begin, end), caches) - expected[end - 1])
        .abs()
        .max()
        .item<double>();
  };
  EXPECT_LT(difference(0, 3), 1e-14);
  for (int64_t t = 3; t < 7; ++t) EXPECT_LT(difference(t, t + 1), 1e-14);
}

// Gradients of layers written with ATen ops against central differences; recomputed, the same bits.
TEST(Architecture, LayersOfAtenOpsGetTheirGradients) {
  Decoder decoder(model_of("running-means"), at::kDouble);
  decoder.initialise(3);
  const MicroBatch batch =
      micro_batch_of_rows(at::tensor({3, 1, 4, 1, 5, 9, 2, 6, 5, 3}, at::kLong).view({2, 5}));
  const auto gradients = [&] {
    decoder.data_parallel().zero_grad();
    decoder.forward_backward(batch, 0.125, {}, 1, 0);
    std::vector<at::Tensor> all;
    for (Param* param : decoder.params()) all.push_back(param->grad().clone());
    return all;
  };
  const std::vector<at::Tensor> grads = gradients();
  for (size_t p = 0; p < grads.size(); ++p) {
    at::Tensor weight = decoder.params()[p]->weight().view({-1});
    for (int64_t i = 0; i < std::min<int64_t>(weight.numel(), 12); ++i) {
      const double h = 1e-6, w = weight[i].item<double>();
      const auto loss_at = [&](double value) {
        weight[i] = value;
        return decoder.loss(batch, 0.125, 0);
      };
      const double slope = (loss_at(w + h) - loss_at(w - h)) / (2 * h);
      weight[i] = w;
      EXPECT_NEAR(grads[p].view({-1})[i].item<double>(), slope, 1e-8) << decoder.params()[p]->name();
    }
  }
  decoder.recompute_blocks();
  const std::vector<at::Tensor> again = gradients();
  for (size_t p = 0; p < grads.size(); ++p) EXPECT_TRUE(at::equal(grads[p], again[p]));
}

TEST(Architecture, ErrorsSayWhatThereIs) {
  const auto error = [](const ModelConfig& model) { return error_of([&] { Decoder(model, at::kDouble); }); };
  EXPECT_THAT(error(model_of("runing-means")),
              HasSubstr("model.architecture = \"runing-means\" is not known: there is "));
  EXPECT_THAT(error(model_of("runing-means")), HasSubstr("\"decoder\", "));
  EXPECT_THAT(error(model_of("two")), HasSubstr("2 architectures are called \"two\""));
  EXPECT_THAT(error(model_of("headless")), HasSubstr("\"headless\" has 1 blocks and no head"));
  ModelConfig missing = model_of("decoder");
  missing.plugins = {"no/such.so"};
  EXPECT_THAT(error(missing), HasSubstr("no/such.so (paths count from where weft is started)"));
  missing.plugins = {WEFT_FIXTURES "/llama-tiny/config.json"};
  EXPECT_THAT(error(missing), HasSubstr("Build it against this version of Weft"));
}

}  // namespace
}  // namespace weft
