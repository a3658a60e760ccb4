// Weights for other tools, from runs and from HuggingFace folders.
#include <cstring>

#include <gmock/gmock.h>

#include "tests/e2e/train_fixture.h"

namespace weft {
namespace {

using testing::HasSubstr;

class Export : public Train {
 protected:
  Result export_model(const std::string& model, std::vector<std::string> options = {}) {
    std::vector<std::string> arguments = {"export", model, dir / "out.safetensors"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run_weft(arguments, dir / "log");
  }

  /// Compares names, shapes and bits with those tensors of `wanted` whose names begin with `prefix`.
  void expect_exported(const SafetensorsFile& wanted, const std::string& prefix = "") {
    const SafetensorsFile out(env, dir / "out.safetensors");
    for (const auto& [name, info] : out.header().tensors) {
      EXPECT_EQ(info.dtype, wanted.info(prefix + name).dtype) << name;
      EXPECT_EQ(info.shape, wanted.info(prefix + name).shape) << name;
      const auto a = out.data(name), b = wanted.data(prefix + name);
      EXPECT_TRUE(a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0) << name;
    }
  }
};

TEST_F(Export, WritesTheWeightsOfARunOrTheirAverage) {
  for (const char* tied : {"true", "false"}) {
    const auto trained = run_weft(train(small_config(), tied,
                                        {"train.steps=3", "optim.warmup_steps=0", "optim.ema_decay=0.9",
                                         std::string("model.tie_embeddings=") + tied}),
                                  dir / "log");
    ASSERT_EQ(trained.status, 0) << trained.output;
    const std::string run = dir / tied, newest = run + "/checkpoints/step-00000003";
    const SafetensorsFile state(env, newest + "/rank-00000.safetensors");

    const auto exported = export_model(run);
    ASSERT_EQ(exported.status, 0) << exported.output;
    expect_exported(state);
    const SafetensorsFile out(env, dir / "out.safetensors");
    EXPECT_EQ(out.header().tensors.size() * 4, state.header().tensors.size())
        << "weights, average and two moments";
    EXPECT_TRUE(out.contains("model.layers.1.mlp.down_proj.weight"));
    EXPECT_EQ(out.contains("lm_head.weight"), std::string(tied) == "false");
    EXPECT_EQ(out.header().metadata.at("format"), "pt");

    ASSERT_EQ(export_model(newest, {"--ema"}).status, 0) << "over what is there";
    expect_exported(state, "ema.");
  }
}

TEST_F(Export, RoundsToTheDtype) {
  ASSERT_EQ(
      run_weft(train(small_config(), "run", {"train.steps=1", "optim.warmup_steps=0"}), dir / "log").status,
      0);
  const auto exported = export_model(dir / "run", {"--dtype", "bf16"});
  ASSERT_EQ(exported.status, 0) << exported.output;
  const SafetensorsFile out(env, dir / "out.safetensors"),
      state(env, dir / "run/checkpoints/step-00000001/rank-00000.safetensors");
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  ASSERT_EQ(out.info(name).dtype, "BF16");
  ASSERT_EQ(out.info(name).shape, state.info(name).shape);
  for (size_t i = 0; i < out.data(name).size() / 2; ++i) {
    uint32_t high = 0;
    float rounded, exact;
    std::memcpy(reinterpret_cast<char*>(&high) + 2, &out.data(name)[2 * i], 2);
    std::memcpy(&rounded, &high, 4), std::memcpy(&exact, &state.data(name)[4 * i], 4);
    EXPECT_NEAR(rounded, exact, std::abs(exact) / 256);
  }
}

TEST_F(Export, SpellsNamesAsTheModelsOwnTypeDoes) {
  const std::string gpt2 = WEFT_FIXTURES "/hf/gpt2";
  const auto exported = export_model(gpt2);
  ASSERT_EQ(exported.status, 0) << exported.output;
  const SafetensorsFile original(env, gpt2 + "/model.safetensors");
  expect_exported(original);
  EXPECT_EQ(SafetensorsFile(env, dir / "out.safetensors").header().tensors.size(),
            original.header().tensors.size());
}

TEST_F(Export, TellsWhatIsWrong) {
  const auto none = export_model(dir / "nothing");
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.output, HasSubstr("is no model"));
  env.create_dirs(dir / "out.safetensors");
  const auto directory = export_model(WEFT_FIXTURES "/hf/gpt2");
  EXPECT_EQ(directory.status, 1);
  EXPECT_THAT(directory.output, HasSubstr("is a directory"));
}

}  // namespace
}  // namespace weft
