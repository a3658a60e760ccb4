// Every published shape that Weft reads, against transformers: logits, loss, each gradient, and a greedy
// continuation through the key/value cache.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "weft/checkpoint/hf_config.h"
#include "weft/checkpoint/hf_weights.h"
#include "weft/checkpoint/tensor_io.h"
#include "weft/commands/load_model.h"
#include "weft/nn/sampling.h"

namespace weft {
namespace {

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kDouble) - b).abs().max() / b.abs().max()).item<double>();
}

class HfModel : public testing::TestWithParam<const char*> {
 protected:
  Env& env = Env::system();
  const std::string dir = std::string(WEFT_FIXTURES "/hf/") + GetParam();
  const SafetensorsFile expected{env, dir + "/expected.safetensors"};
  const at::Tensor ids = read_tensor(expected, "input_ids").clone();

  const MicroBatch batch = micro_batch_of_rows(ids);

  void compare(at::ScalarType dtype, double bound) {
    const auto decoder = load_hf_model(env, dir, dtype);
    const double targets = double(ids.size(0) * (ids.size(1) - 1));
    const at::Tensor logits = decoder->logits(batch).view({ids.size(0), ids.size(1), -1});
    EXPECT_LT(relative_error(logits, read_tensor(expected, "logits")), bound);
    const double loss = decoder->forward_backward(batch, 1 / targets, {}, 0, 0);
    const double wanted = read_tensor(expected, "loss").item<double>();
    EXPECT_NEAR(loss, wanted, bound * wanted);
    EXPECT_NEAR(decoder->loss(batch, 1 / targets, 0), wanted, bound * wanted);
    size_t gradients = 0;
    const HfNames names(read_hf_model(env, dir));
    for (const auto& [name, grad] :
         hf_tensors(names, decoder->params(), [](const Param& p) { return p.grad(); })) {
      ++gradients;
      EXPECT_LT(relative_error(grad, read_tensor(expected, "grad." + name)), bound) << name;
    }
    EXPECT_EQ(gradients + 3, expected.header().tensors.size())
        << "input_ids, logits, loss and every gradient";
  }
};

TEST_P(HfModel, EqualsTransformersInFp64) { compare(at::kDouble, 1e-9); }
TEST_P(HfModel, EqualsTransformersInFp32) { compare(at::kFloat, 1e-4); }

// Reading and assembling are inverse: each tensor of the file comes back bit for bit.
TEST_P(HfModel, WeightsGoBackWhereTheyCameFrom) {
  const auto decoder = load_hf_model(env, dir, at::kFloat);
  const SafetensorsFile file(env, dir + "/model.safetensors");
  const auto tensors = hf_tensors(HfNames(read_hf_model(env, dir)), decoder->params(),
                                  [](const Param& param) { return param.weight(); });
  EXPECT_EQ(tensors.size(), file.header().tensors.size());
  for (const auto& [name, tensor] : tensors) EXPECT_TRUE(at::equal(tensor, read_tensor(file, name))) << name;
}

TEST_P(HfModel, ContinuesGreedilyThroughTheCache) {
  const auto facts = nlohmann::json::parse(env.read(dir + "/expected.json"));
  const auto greedy = facts.at("greedy").get<std::vector<int64_t>>();
  const int64_t prompt = facts.at("greedy_prompt_tokens").get<int64_t>();
  const auto decoder = load_hf_model(env, dir, at::kDouble);
  auto caches = decoder->make_caches(int64_t(greedy.size()));
  at::Tensor next = ids[0].narrow(0, 0, prompt);
  std::vector<int64_t> made(greedy.begin(), greedy.begin() + prompt);
  while (made.size() < greedy.size()) {
    made.push_back(
        sample_token(decoder->next_logits(next, caches), {.temperature = 0}, int64_t(made.size())));
    next = at::tensor(std::vector<int64_t>{made.back()}, at::kLong);
  }
  EXPECT_EQ(made, greedy);
}

INSTANTIATE_TEST_SUITE_P(All, HfModel,
                         testing::Values("bloom", "falcon-40b-style", "falcon-7b-style", "falcon-sequential",
                                         "gemma2", "gemma3", "gpt2", "granite", "llama-bias-headdim",
                                         "llama-dynamic-ntk", "llama-gqa", "llama-mha-tied", "llama3-rope",
                                         "mistral-window", "olmo2", "phi3-longrope-long",
                                         "phi3-longrope-short", "qwen2", "qwen3", "smollm3-nope",
                                         "starcoder2"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace weft
