// Checkpoints that several ranks wrote, made in one process: each rank's part is pure.
#include "weft/checkpoint/rank_file.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/safetensors.h"

#include "tests/base/error_of.h"
#include "tests/base/fault_env.h"
#include "tests/base/temporary_dir.h"
#include "tests/checkpoint/tiny_state.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RankFiles : public testing::Test {
 protected:
  /// As save_checkpoint does it on `ranks` ranks.
  std::string save(int64_t step, const TinyState& state, int64_t ranks) {
    Checkpoint checkpoint{root + "/" + step_name(step), step, {{"seed", 1}}, {}, {}};
    env.create_dirs(checkpoint.dir);
    std::vector<RankFile> files;
    for (int64_t rank = 0; rank < ranks; ++rank)
      files.push_back(parse_rank_file(
          to_text(write_rank_file(env, checkpoint.dir, rank, state.tensors_of(rank, ranks)))));
    enter(files, &checkpoint);
    env.create(checkpoint.dir + "/" + kIndexFile)->append(index_text(checkpoint));
    return checkpoint.dir;
  }

  FaultEnv env;
  TemporaryDir dir;
  std::string root = dir / "checkpoints";
};

TEST_F(RankFiles, LoadIntoAnyNumberOfRanks) {
  TinyState state;
  state.fill(7);
  for (const int64_t saved : {1, 2, 3, 8}) {
    const Checkpoint checkpoint = open_checkpoint(env, save(saved, state, saved));
    for (const int64_t loading : {1, 2, 3, 5, 11}) {
      SCOPED_TRACE(std::to_string(saved) + " files, " + std::to_string(loading) + " ranks");
      TinyState loaded;
      for (int64_t rank = 0; rank < loading; ++rank) {
        load_checkpoint(env, checkpoint, loaded.tensors_of(rank, loading));
        EXPECT_EQ(loaded.same_bits(state), rank == loading - 1) << "rank " << rank;
      }
    }
    TinyState whole;
    load_weights(env, checkpoint, whole.params());
    EXPECT_TRUE(at::equal(whole.params()[0]->weight(), state.params()[0]->weight()));
  }
}

TEST_F(RankFiles, HoldTheBoxesOfTheirParts) {
  const TinyState state(at::kFloat, {{5, 7}});
  const StateTensor& weight = state.tensors()[0];
  const RankFile written =
      write_rank_file(env, dir.path(), 3, {{kWeight, weight.param, 3, weight.data.narrow(0, 3, 27)}});
  EXPECT_EQ(written.file.name, "rank-00003.safetensors");
  const SafetensorsFile file(env, dir / written.file.name);
  EXPECT_THAT(file.info("layer.0.weight[0:1,3:7]").shape, ElementsAre(1, 4));
  EXPECT_THAT(file.info("layer.0.weight[1:4,0:7]").shape, ElementsAre(3, 7));
  EXPECT_THAT(file.info("layer.0.weight[4:5,0:2]").shape, ElementsAre(1, 2));
  EXPECT_EQ(file.header().tensors.size(), 3u);
}

TEST_F(RankFiles, DamageOfAnyOneIsNamedAndThePreviousCheckpointUsed) {
  TinyState old_state, new_state;
  save(1, old_state.fill(1), 2);
  for (const int64_t rank : {0, 1, 2}) {
    const std::string path = save(2, new_state.fill(2), 3) + "/" + rank_file_name(rank);
    const auto finds_the_old_one = [&](const std::string& damage) {
      std::vector<std::string> warnings;
      const auto found =
          find_checkpoint(env, root, [&](const std::string& line) { warnings.push_back(line); });
      EXPECT_EQ(found->step, 1);
      EXPECT_THAT(warnings, ElementsAre(testing::AllOf(HasSubstr(path + ": "), HasSubstr(damage),
                                                       HasSubstr("; using step-00000001"))));
    };
    const auto middle = std::filesystem::file_size(path) / 2;
    FaultEnv::flip_bit(path, middle);
    finds_the_old_one("the file is damaged");
    std::filesystem::resize_file(path, middle);
    finds_the_old_one(std::to_string(middle) + " bytes, expected");
    std::filesystem::remove(path);
    finds_the_old_one("No such file or directory");
  }
}

TEST_F(RankFiles, AFullDiskIsAnError) {
  const TinyState state;
  env.fill_disk_after(500);
  EXPECT_THAT(error_of([&] { write_rank_file(env, dir.path(), 1, state.tensors_of(1, 3)); }),
              HasSubstr("cannot write " + dir / "rank-00001.safetensors" + ": No space left on device"));
}

class EnterTest : public testing::Test {
 protected:
  using Ranges = std::vector<std::pair<int64_t, int64_t>>;

  /// What comes of files whose ranks hold these elements of a tensor [3, 4].
  static std::string enter_ranges(const Ranges& ranges) {
    std::vector<RankFile> files;
    for (const auto& [begin, end] : ranges) {
      files.push_back({{rank_file_name(int64_t(files.size())), 1, "f"}, {}});
      for (const Box& box : boxes_of_range({3, 4}, begin, end))
        files.back().parts.push_back({TensorBox{box, "exp_avg", "layer.0.weight"}, {"F32", {3, 4}}});
    }
    Checkpoint checkpoint;
    const std::string error = error_of([&] { enter(files, &checkpoint); });
    if (error == "no error") {
      EXPECT_EQ(checkpoint.files.size(), ranges.size());
      EXPECT_EQ(checkpoint.tensors["exp_avg"]["layer.0.weight"], (GlobalTensor{"F32", {3, 4}}));
    }
    return error;
  }
};

TEST_F(EnterTest, PartsThatTileTheTensorMakeACheckpoint) {
  EXPECT_EQ(enter_ranges({{0, 12}}), "no error");
  EXPECT_EQ(enter_ranges({{7, 12}, {0, 5}, {5, 7}}), "no error");
}

TEST_F(EnterTest, AGapOrAnOverlapIsNone) {
  EXPECT_EQ(enter_ranges({{0, 5}, {7, 12}}),
            "exp_avg.layer.0.weight: 2 of 12 elements are in none of the ranks' files");
  EXPECT_EQ(enter_ranges({{0, 5}}),
            "exp_avg.layer.0.weight: 7 of 12 elements are in none of the ranks' files");
  EXPECT_EQ(enter_ranges({{1, 12}}),
            "exp_avg.layer.0.weight: 1 of 12 elements are in none of the ranks' files");
  EXPECT_EQ(
      enter_ranges({{0, 8}, {6, 12}}),
      "exp_avg.layer.0.weight: elements from [1, 2] to [2, 4] are in more than one of the ranks' files");
  EXPECT_EQ(
      enter_ranges({{0, 12}, {0, 12}}),
      "exp_avg.layer.0.weight: elements from [0, 0] to [3, 4] are in more than one of the ranks' files");
}

TEST(Enter, RanksThatDifferOnATensorMakeNone) {
  const auto file = [](int64_t rank, const char* dtype) {
    const TensorBox box{{{2 * rank}, {2 * rank + 2}}, kWeight, "w"};
    return RankFile{{rank_file_name(rank), 1, ""}, {{box, {dtype, {4}}}}};
  };
  Checkpoint checkpoint;
  EXPECT_EQ(error_of([&] {
              enter({file(0, "F32"), file(1, "F64")}, &checkpoint);
            }),
            "w: F64 [4] in rank-00001.safetensors, but F32 [4] in the files before it");
}

}  // namespace
}  // namespace weft
