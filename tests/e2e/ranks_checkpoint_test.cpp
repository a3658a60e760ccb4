// Checkpoints of many ranks: whatever layout saved one, any other goes on from it as if nothing had happened.
#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>

#include "weft/checkpoint/format.h"

#include "tests/base/fault_env.h"
#include "tests/e2e/train_fixture.h"

namespace weft {
namespace {

using testing::HasSubstr;

class RanksCheckpoint : public Train {
 protected:
  std::string train_on(int ranks, const std::string& run, const std::string& zero, int tp = 1) {
    std::vector<std::string> arguments =
        train(small_config(), run,
              {"model.n_heads=4", "model.n_kv_heads=2", fmt::format("parallel.tp={}", tp),
               "parallel.zero=" + zero, "precision.compute=fp64", "train.steps=6", "train.threads=1",
               "checkpoint.save_every=2", "checkpoint.keep_last=0", "optim.ema_decay=0.9"});
    if (ranks > 1) arguments.insert(arguments.end(), {"--ranks", std::to_string(ranks)});
    const auto result = run_weft(arguments, dir / "log");
    EXPECT_EQ(result.status, 0) << result.output;
    return result.output;
  }

  std::string step_dir(const std::string& run, int step) {
    return dir / run + fmt::format("/checkpoints/step-{:08}", step);
  }

  /// A copy of `source` whose newest checkpoint is that of `step`.
  void go_back(const std::string& source, const std::string& run, int step) {
    std::filesystem::copy(dir / source, dir / run, std::filesystem::copy_options::recursive);
    for (int later = step + 2; later <= 6; later += 2) std::filesystem::remove_all(step_dir(run, later));
  }

  void expect_same_curve(const std::string& run) {
    const auto expected = metrics(dir / "whole"), found = metrics(dir / run);
    ASSERT_EQ(found.size(), 6u);
    for (size_t i = 0; i < 6; ++i)
      for (const char* key : {"loss", "grad_norm"}) {
        const double wanted = expected[i].at(key);
        EXPECT_NEAR(found[i].at(key).get<double>(), wanted, 1e-9 * wanted) << key << " of step " << i + 1;
      }
  }
};

TEST_F(RanksCheckpoint, AnyLayoutGoesOnFromAnyOther) {
  train_on(1, "whole", "0");
  train_on(3, "three", "3");
  EXPECT_THAT(env.list(step_dir("three", 2)),
              testing::ElementsAre("index.json", "rank-00000.safetensors", "rank-00001.safetensors",
                                   "rank-00002.safetensors"));
  for (const auto& [ranks, zero] : {std::pair(1, "0"), {2, "0"}, {2, "1"}, {4, "2"}, {2, "3"}}) {
    SCOPED_TRACE(fmt::format("{} ranks, zero {}", ranks, zero));
    const std::string run = fmt::format("on-{}-{}", ranks, zero);
    go_back("three", run, 2);
    EXPECT_THAT(train_on(ranks, run, zero), HasSubstr("resuming after step 2"));
    expect_same_curve(run);
  }
}

TEST_F(RanksCheckpoint, AnyTensorParallelismGoesOnFromAnyOther) {
  train_on(1, "whole", "0");
  train_on(4, "four", "1", /*tp=*/4);  // each KV head on two ranks, and a vocabulary of 31
  for (const auto& [ranks, zero, tp] :
       {std::tuple(1, "0", 1), {2, "0", 2}, {4, "3", 2}, {4, "0", 4}, {3, "2", 1}}) {
    SCOPED_TRACE(fmt::format("{} ranks, zero {}, tp {}", ranks, zero, tp));
    const std::string run = fmt::format("on-{}-{}-{}", ranks, zero, tp);
    go_back("four", run, 2);
    EXPECT_THAT(train_on(ranks, run, zero, tp), HasSubstr("resuming after step 2"));
    expect_same_curve(run);
  }
}

TEST_F(RanksCheckpoint, DamageOfOneRanksFileSendsAllToThePreviousOne) {
  train_on(1, "whole", "0");
  train_on(3, "three", "2");
  const std::string damaged = step_dir("three", 6) + "/rank-00001.safetensors";
  FaultEnv::flip_bit(damaged, 5000);
  const std::string output = train_on(2, "three", "3"), warning = damaged + ": checksum ";
  EXPECT_THAT(output, HasSubstr("using step-00000004"));
  EXPECT_THAT(output, HasSubstr("resuming after step 4"));
  const size_t first = output.find(warning);
  EXPECT_NE(first, std::string::npos) << output;
  EXPECT_EQ(output.find(warning, first + 1), std::string::npos) << "once, not by every rank: " << output;
  expect_same_curve("three");
}

TEST_F(RanksCheckpoint, IsExportedWhole) {
  train_on(3, "three", "3");
  const auto exported = run_weft({"export", dir / "three", dir / "out.safetensors"}, dir / "log");
  ASSERT_EQ(exported.status, 0) << exported.output;
  const SafetensorsFile out(env, dir / "out.safetensors");
  EXPECT_EQ(out.info("model.embed_tokens.weight").shape, (std::vector<int64_t>{31, 24}));
  size_t expected = 0, found = 0;
  for (const auto& [name, info] : out.header().tensors) expected += out.data(name).size();
  for (int rank = 0; rank < 3; ++rank) {
    const SafetensorsFile file(env, step_dir("three", 6) + "/" + rank_file_name(rank));
    for (const auto& [name, box] : parse_boxes(file.header().metadata.at(kBoxesKey), file.path())) {
      if (box.kind != kWeight) continue;
      const TensorInfo& whole = out.info(box.name);
      EXPECT_EQ(whole.dtype, "F64");
      size_t first = 0;  // the elements of a rank's box lie side by side in the whole tensor
      for (size_t dim = 0; dim < whole.shape.size(); ++dim)
        first = first * size_t(whole.shape[dim]) + size_t(box.begin[dim]);
      const auto part = file.data(name), there = out.data(box.name).subspan(8 * first, part.size());
      EXPECT_EQ(std::memcmp(part.data(), there.data(), part.size()), 0) << name;
      found += part.size();
    }
  }
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace weft
