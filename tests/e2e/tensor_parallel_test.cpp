// Tensor parallelism of published models, from their HuggingFace folders: what the ranks compute together is
// what one computes.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

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
      double largest = 0;
      for (const double value : expected) largest = std::max(largest, std::abs(value));
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_LE(std::abs(expected[i] - found[i]), 1e-12 * largest) << name;
    }
    ++compared;
  }
  EXPECT_GE(compared, 21);
}

// AutoTP: a folder and a mesh, no code.
TEST_F(TensorParallelModel, TrainsFromAFolderAlongOneCurve) {
  for (const char* folder : {"bloom", "falcon-40b-style", "gemma2", "granite", "olmo2", "phi3-longrope-short",
                             "qwen3", "starcoder2"}) {
    SCOPED_TRACE(folder);
    std::ofstream(dir / "hf.toml") << fmt::format(R"(
[model]
from_hf = "{}/hf/{}"
[data]
format = "mock"
[train]
steps = 3
seq_len = 23
micro_batch = 3
global_batch = 5
eval_every = 0
eval_sequences = 4
[precision]
compute = "fp64"
)",
                                                  WEFT_FIXTURES, folder);
    const auto losses = [&](const std::string& run, std::vector<std::string> more) {
      std::vector<std::string> arguments = train(dir / "hf.toml", run);
      arguments.insert(arguments.end(), more.begin(), more.end());
      const auto result = run_weft(arguments, dir / "log");
      EXPECT_EQ(result.status, 0) << result.output;
      std::vector<double> all;
      for (const auto& line : metrics(dir / run))
        for (const char* key : {"loss", "grad_norm"}) all.push_back(line.at(key).get<double>());
      return all;
    };
    const std::vector<double> one = losses(fmt::format("{}-1", folder), {});
    const std::vector<double> ranks = losses(
        fmt::format("{}-4", folder), {"--ranks", "4", "--set", "parallel.tp=2", "--set", "parallel.zero=3"});
    ASSERT_EQ(one.size(), 6u);
    ASSERT_EQ(ranks.size(), 6u);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(ranks[i], one[i], 1e-9 * one[i]);
  }
}

// Each of the four linears sends and receives a piece while it multiplies another: in the trace these
// transfers lie beside the op, and begin inside it.
TEST_F(TensorParallelModel, AsyncPiecesShowInTheTrace) {
  const auto transfers = [&](const std::string& run, const char* async) {
    std::vector<std::string> arguments = train(small_config(), run,
                                               {"model.n_heads=2", "parallel.tp=2", "train.steps=3",
                                                "optim.warmup_steps=0", "train.micro_batch=3", async});
    arguments.insert(arguments.end(), {"--ranks", "2", "--profile", "2-2"});
    const auto result = run_weft(arguments, dir / "log");
    EXPECT_EQ(result.status, 0) << result.output;
    const auto trace = nlohmann::json::parse(env.read(dir / run + "/trace.json"));
    std::vector<std::pair<double, double>> linears;
    std::vector<double> begun;
    for (const auto& event : trace.at("traceEvents")) {
      const std::string name = event.value("name", ""), phase = event.value("ph", "");
      const auto at = [&](const char* key) { return event.at(key).get<double>(); };
      if (phase == "X" && name.starts_with("linear ")) linears.emplace_back(at("ts"), at("ts") + at("dur"));
      if (phase == "b" && name == "send_recv") begun.push_back(at("ts"));
    }
    EXPECT_EQ(linears.size(), 2u * 4 * 2);  // layers, linears, passes
    return std::ranges::count_if(begun, [&](double ts) {
      return std::ranges::any_of(linears,
                                 [&](const auto& span) { return span.first <= ts && ts <= span.second; });
    });
  };
  EXPECT_EQ(transfers("async", "parallel.async_tp=true"), 2 * 4 * 2 * 2);  // there, and back
  EXPECT_EQ(transfers("plain", "parallel.async_tp=false"), 0);
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
