// Tensor parallelism of published models, from their HuggingFace folders: what the ranks compute together is
// what one computes.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include <gmock/gmock.h>

#include "weft/base/safetensors.h"

#include "tests/e2e/train_fixture.h"

namespace weft {
namespace {

using testing::HasSubstr;

class TensorParallelModel : public Train {
 protected:
  /// `weft logits --grad` of a folder on so many ranks; its output.
  std::string logits(const std::string& folder, int tp, const std::string& output) {
    std::vector<std::string> arguments = {"logits",
                                          folder,
                                          "--input",
                                          folder + "/expected.safetensors",
                                          "--output",
                                          dir / output,
                                          "--dtype",
                                          "fp64",
                                          "--grad",
                                          "--ranks",
                                          fmt::format("{}", tp),
                                          "--set",
                                          fmt::format("parallel.tp={}", tp)};
    return run_weft(arguments, dir / "log").output;
  }

  static std::span<const double> values(const SafetensorsFile& file, const std::string& name) {
    const auto bytes = file.data(name);
    return {reinterpret_cast<const double*>(bytes.data()), bytes.size() / sizeof(double)};
  }
};

TEST_F(TensorParallelModel, ComputesLogitsLossAndGradientsOfOneRank) {
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_FIXTURES "/hf")) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    logits(entry.path(), 1, "one.safetensors");
    std::filesystem::remove(dir / "ranks.safetensors");
    std::string said = logits(entry.path(), 2, "ranks.safetensors");
    if (said.find("parallel.tp = 2 does not divide the model") != std::string::npos) {  // three heads
      EXPECT_THAT(said, HasSubstr("1, 3 would work"));
      said = logits(entry.path(), 3, "ranks.safetensors");
    }
    ASSERT_TRUE(std::filesystem::exists(dir / "ranks.safetensors")) << said;
    const SafetensorsFile one(env, dir / "one.safetensors"), ranks(env, dir / "ranks.safetensors");
    EXPECT_EQ(one.header().tensors.size(), ranks.header().tensors.size());
    for (const auto& [name, info] : one.header().tensors) {
      const auto expected = values(one, name), found = values(ranks, name);
      ASSERT_EQ(expected.size(), found.size()) << name;
      double largest = 0, difference = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        largest = std::max(largest, std::abs(expected[i]));
        difference = std::max(difference, std::abs(expected[i] - found[i]));
      }
      EXPECT_LE(difference, 1e-12 * largest) << name;
    }
    ++compared;
  }
  EXPECT_GE(compared, 21);
}

TEST_F(TensorParallelModel, OfSizesThatDoNotDivideTellsThoseThatDo) {
  const auto result =
      run_weft(train(small_config(), "run", {"parallel.tp=2"}), dir / "log");  // three heads, an MLP of 64
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output,
              HasSubstr("parallel.tp = 2 does not divide the model: it must divide n_heads = 3 and "
                        "ffn_dim = 64, and divide, or be a multiple of, n_kv_heads = 1: 1 would work"));
}

TEST_F(TensorParallelModel, TakesNoOtherKeys) {
  const auto result = run_weft({"generate", dir.path(), "--prompt", "", "--set", "model.dim=8"}, dir / "log");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.output, HasSubstr("--set model.dim=8: expected a key of [parallel] or [comm]"));
}

}  // namespace
}  // namespace weft
