#include "weft/checkpoint/hf_weights.h"

#include <memory>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/checkpoint/tensor_io.h"
#include "weft/param/param_unit.h"

#include "tests/base/temporary_dir.h"

namespace weft {
namespace {

using testing::HasSubstr;
using Named = std::vector<std::pair<std::string, at::Tensor>>;

class HfWeights : public testing::Test {
 protected:
  void write(const std::string& file, const Named& tensors) {
    std::vector<TensorToWrite> to_write;
    for (const auto& [name, tensor] : tensors) to_write.push_back(tensor_to_write(name, tensor));
    write_safetensors(env, dir / file, to_write);
  }
  void write_index(const std::string& text) {
    write_file_atomically(env, dir / "model.safetensors.index.json", text);
  }

  /// A model of these params, loaded from the folder; the error is kept.
  void load(const std::vector<std::pair<std::string, std::vector<int64_t>>>& params,
            at::ScalarType dtype = at::kFloat) {
    unit = std::make_unique<ParamUnit>("unit", dtype);
    std::vector<Param*> all;
    for (const auto& [name, shape] : params) all.push_back(&unit->add({name, shape, {}, {}}));
    unit->allocate();
    error = "no error";
    try {
      load_hf_weights(env, dir.path(), HfNames({"llama", {}}), all);
    } catch (const Error& caught) {
      error = caught.what();
    }
  }
  at::Tensor loaded(size_t i) { return unit->params()[i]->weight(); }

  Env& env = Env::system();
  TemporaryDir dir;
  std::unique_ptr<ParamUnit> unit;
  std::string error;
};

TEST_F(HfWeights, EveryFloatDtypeIsConvertedExactly) {
  // 1 + 2^-7 and 2^-24 (the smallest half) are exact in all four.
  const at::Tensor values = at::tensor({1 + 0x1p-7, -0x1p-24, 3.0}, at::kDouble);
  for (const auto stored : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    write("model.safetensors", {{"w", values.to(stored)}});
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      load({{"w", {3}}}, dtype);
      EXPECT_EQ(error, "no error");
      EXPECT_TRUE(at::equal(loaded(0), values.to(dtype)))
          << at::toString(stored) << " " << at::toString(dtype);
    }
  }
}

TEST_F(HfWeights, Fp64IsRoundedToNearest) {
  write("model.safetensors", {{"w", at::tensor({1.0 / 3}, at::kDouble)}});
  load({{"w", {1}}});
  EXPECT_EQ(loaded(0).item<float>(), float(1.0 / 3));
}

TEST_F(HfWeights, DataNeedNotBeAligned) {
  write("model.safetensors",
        {{"a", at::ones({1}, at::kBFloat16)}, {"b", at::tensor({0.1, 0.2, 0.3}, at::kDouble)}});
  load({{"a", {1}}, {"b", {3}}}, at::kDouble);
  EXPECT_TRUE(at::equal(loaded(1), at::tensor({0.1, 0.2, 0.3}, at::kDouble)));
}

TEST_F(HfWeights, ShardsAreReadThroughTheIndex) {
  write("model-00001-of-00002.safetensors", {{"a", at::tensor({1.f, 2.f})}, {"b", at::tensor({3.f})}});
  write("model-00002-of-00002.safetensors", {{"c", at::tensor({4.f})}});
  write_index(R"({"metadata": {"total_size": 16}, "weight_map": {"a": "model-00001-of-00002.safetensors",
    "b": "model-00001-of-00002.safetensors", "c": "model-00002-of-00002.safetensors"}})");
  load({{"c", {1}}, {"a", {2}}, {"b", {1}}});
  EXPECT_EQ(error, "no error");
  EXPECT_TRUE(at::equal(loaded(0), at::tensor({4.f})));
  EXPECT_TRUE(at::equal(loaded(1), at::tensor({1.f, 2.f})));

  std::filesystem::remove(dir / "model-00002-of-00002.safetensors");
  load({{"a", {2}}});
  EXPECT_EQ(error, "cannot read " + dir / "model-00002-of-00002.safetensors" + ": No such file or directory");
  write("model-00002-of-00002.safetensors", {{"a", at::tensor({4.f})}});
  load({{"a", {2}}});
  EXPECT_THAT(error, HasSubstr("model-00002-of-00002.safetensors: tensor a is in " +
                               dir / "model-00001-of-00002.safetensors too"));
}

TEST_F(HfWeights, ABadIndexIsAnError) {
  for (const char* text : {"{", "[]", R"({"weight_map": {"a": 3}})", "{}"}) {
    write_index(text);
    load({});
    EXPECT_THAT(error, HasSubstr("index.json: a JSON object with a \"weight_map\"")) << text;
  }
  write_index(R"({"weight_map": {"a": "../a.safetensors"}})");
  load({});
  EXPECT_THAT(error, HasSubstr("index.json: \"../a.safetensors\" is not a file name"));
}

TEST_F(HfWeights, EverythingThatDoesNotFitIsListed) {
  write("model.safetensors",
        {{"shape", at::zeros({2, 3})}, {"dtype", at::zeros({2}, at::kInt)}, {"extra", at::zeros({1})}});
  load({{"missing", {2}}, {"shape", {3, 2}}, {"dtype", {2}}});
  EXPECT_EQ(error, "the weights in " + dir.path() +
                       " do not fit the model:\n"
                       "  missing: not in the file\n"
                       "  shape: [2, 3] in the file, [3, 2] in the model\n"
                       "  dtype: I32 in the file, only BF16, F16, F32, F64 can be read\n"
                       "  extra: in the file, but not in the model\n"
                       "Does config.json in the same folder describe them?");
}

TEST_F(HfWeights, ATiedHeadAndRotaryFrequenciesAreLeftOut) {
  write("model.safetensors", {{"model.embed_tokens.weight", at::ones({2, 2})},
                              {"lm_head.weight", at::zeros({2, 2})},
                              {"model.layers.0.self_attn.rotary_emb.inv_freq", at::zeros({3})}});
  load({{"model.embed_tokens.weight", {2, 2}}});
  EXPECT_EQ(error, "no error");
  load({{"lm_head.weight", {2, 3}}, {"model.embed_tokens.weight", {2, 2}}});
  EXPECT_THAT(error, HasSubstr("lm_head.weight: [2, 2] in the file, [2, 3] in the model"));
}

TEST_F(HfWeights, NoWeightsAreAnError) {
  load({});
  EXPECT_THAT(
      error, HasSubstr(dir.path() + ": neither model.safetensors nor model.safetensors.index.json is there"));
}

// Hub files of GPT-2 and BLOOM leave "transformer." out, and GPT-2's hold its causal mask.
TEST_F(HfWeights, TheTypesPrefixMayBeMissing) {
  HfModel gpt2{"gpt2", {}};
  gpt2.config.n_heads = 2, gpt2.config.n_kv_heads = 2, gpt2.config.head_dim = 1;
  const at::Tensor c_attn = at::arange(12, at::kDouble).view({2, 6});
  write("model.safetensors", {{"h.0.attn.c_attn.weight", c_attn}, {"h.0.attn.bias", at::ones({1})}});
  unit = std::make_unique<ParamUnit>("unit", at::kDouble);
  std::vector<Param*> params;
  for (const char* name : {"q", "k", "v"})
    params.push_back(
        &unit->add({fmt::format("model.layers.0.self_attn.{}_proj.weight", name), {2, 2}, {}, {}}));
  unit->allocate();
  load_hf_weights(env, dir.path(), HfNames(gpt2), params);
  for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(loaded(size_t(i)), c_attn.narrow(1, 2 * i, 2).t()));

  write("model.safetensors", {{"h.0.attn.c_attn.weight", c_attn.t().contiguous()}});
  try {
    load_hf_weights(env, dir.path(), HfNames(gpt2), params);
    FAIL();
  } catch (const Error& caught) {
    EXPECT_THAT(caught.what(), HasSubstr("h.0.attn.c_attn.weight: [6, 2] in the file, [2, 6] in the model"));
  }
}

TEST_F(HfWeights, ReadsWhatTransformersWrote) {
  const std::string folder = WEFT_FIXTURES "/hf/llama-mha-tied";
  const SafetensorsFile file(env, folder + "/model.safetensors");
  unit = std::make_unique<ParamUnit>("unit", at::kDouble);
  std::vector<Param*> params;
  for (const auto& [name, info] : file.header().tensors)
    params.push_back(&unit->add({name, info.shape, {}, {}}));
  unit->allocate();
  load_hf_weights(env, folder, HfNames({"llama", {}}), params);
  for (const Param* param : params)
    EXPECT_TRUE(at::equal(param->weight(), read_tensor(file, param->name()).to(at::kDouble)))
        << param->name();
}

}  // namespace
}  // namespace weft
