// Loading into a model: other layouts' files, and models that the checkpoint does not fit.
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/safetensors.h"
#include "weft/checkpoint/checkpoint.h"

#include "tests/base/error_of.h"
#include "tests/base/temporary_dir.h"
#include "tests/checkpoint/tiny_state.h"

namespace weft {
namespace {

using testing::HasSubstr;
using Range = std::pair<int64_t, int64_t>;

/// Lays a checkpoint of one [5, 7] weight, whose element i is i, over files, each with boxes of it.
class BoxedLoad : public testing::Test {
 protected:
  using Ranges = std::vector<Range>;

  std::string load(const std::vector<std::vector<Ranges>>& files) {
    Checkpoint checkpoint;
    checkpoint.dir = dir.path();
    checkpoint.tensors[kWeight]["layer.0.weight"] = {"F32", {5, 7}};
    for (size_t rank = 0; rank < files.size(); ++rank) {
      checkpoint.files.push_back({rank_file_name(int64_t(rank)), 0, ""});
      write_file(dir / checkpoint.files.back().name, files[rank]);
    }
    return error_of([&] { load_weights(Env::system(), checkpoint, state.params()); });
  }

  bool loaded_well() const {
    return at::equal(state.params()[0]->weight(), at::arange(35, at::kFloat).view({5, 7}));
  }

  TemporaryDir dir;
  TinyState state{at::kFloat, {{5, 7}}};

 private:
  void write_file(const std::string& path, const std::vector<Ranges>& boxes_of_file) {
    std::vector<std::vector<float>> values;
    std::vector<TensorToWrite> tensors;
    std::map<std::string, TensorBox> boxes;
    for (const Ranges& range : boxes_of_file) {
      const TensorBox box{
          {{range[0].first, range[1].first}, {range[0].second, range[1].second}}, kWeight, "layer.0.weight"};
      values.emplace_back();
      for (int64_t row = box.begin[0]; row < box.end[0]; ++row)
        for (int64_t column = box.begin[1]; column < box.end[1]; ++column)
          values.back().push_back(float(row * 7 + column));
      const std::string name = name_in_file(box, {5, 7});
      boxes[name] = box;
      tensors.push_back({name,
                         "F32",
                         {box.end[0] - box.begin[0], box.end[1] - box.begin[1]},
                         std::as_bytes(std::span(values.back()))});
    }
    write_safetensors(Env::system(), path, tensors, {{"boxes", boxes_text(boxes)}});
  }
};

TEST_F(BoxedLoad, PiecesInAnyFilesAndOrderMakeTheWhole) {
  EXPECT_EQ(load({{{{3, 5}, {0, 7}}, {{0, 1}, {0, 4}}}, {{{1, 3}, {0, 7}}}, {}, {{{0, 1}, {4, 7}}}}),
            "no error");
  EXPECT_TRUE(loaded_well());
}

TEST_F(BoxedLoad, TheOneFileOfOneRankIsASpecialCase) {
  EXPECT_EQ(load({{{{0, 5}, {0, 7}}}}), "no error");
  EXPECT_TRUE(loaded_well());
}

TEST_F(BoxedLoad, AGapIsAnError) {
  EXPECT_EQ(
      load({{{{0, 5}, {0, 3}}}, {{{0, 4}, {3, 7}}}}),
      dir.path() +
          ": layer.0.weight: only 31 of 35 elements that this rank needs are in the files of the checkpoint");
  EXPECT_EQ(
      load({{}}),
      dir.path() +
          ": layer.0.weight: only 0 of 35 elements that this rank needs are in the files of the checkpoint");
}

TEST_F(BoxedLoad, AnOverlapIsAnErrorEvenIfTheCountIsRight) {
  // 4 x 7 + 1 x 3 + 1 x 4 elements, but one of them twice and one never.
  EXPECT_EQ(load({{{{0, 4}, {0, 7}}, {{4, 5}, {0, 3}}}, {{{4, 5}, {2, 6}}}}),
            dir / "rank-00001.safetensors" +
                ": tensor layer.0.weight[4:5,2:6] overlaps tensor layer.0.weight[4:5,0:3] of " +
                dir / "rank-00000.safetensors");
}

TEST_F(BoxedLoad, ABoxOutsideTheTensorIsAnError) {
  EXPECT_EQ(load({{{{0, 6}, {0, 7}}}}), dir / "rank-00000.safetensors" +
                                            ": tensor layer.0.weight[0:6,0:7], F32 [6, 7], is no piece of "
                                            "layer.0.weight, F32 [5, 7]");
}

class Load : public testing::Test {
 protected:
  Checkpoint save(const TinyState& state) {
    save_checkpoint(env, dir / "checkpoints", 3, {}, state.tensors(), 0);
    return open_checkpoint(env, dir / "checkpoints/step-00000003");
  }
  Env& env = Env::system();
  TemporaryDir dir;
};

TEST_F(Load, AModelThatDoesNotFitIsToldEveryDifference) {
  const Checkpoint checkpoint = save(TinyState(at::kFloat, {{2, 3}, {4}, {5}}));
  const TinyState other(at::kFloat, {{2, 4}, {4}});
  EXPECT_EQ(error_of([&] { load_checkpoint(env, checkpoint, other.tensors()); }),
            checkpoint.dir +
                " does not fit the model:\n"
                "  layer.0.weight: F32 [2, 3] in the checkpoint, F32 [2, 4] in the model\n"
                "  exp_avg.layer.0.weight: F32 [2, 3] in the checkpoint, F32 [2, 4] in the model\n"
                "  exp_avg_sq.layer.0.weight: F32 [2, 3] in the checkpoint, F32 [2, 4] in the model\n"
                "  exp_avg.layer.2.weight: in the checkpoint, but not in the model\n"
                "  exp_avg_sq.layer.2.weight: in the checkpoint, but not in the model\n"
                "  layer.2.weight: in the checkpoint, but not in the model\n"
                "Continue with the [model], [optim] and precision.compute it was saved with, or start afresh "
                "in another "
                "log.run_dir.");
}

TEST_F(Load, AnotherPrecisionOrAMissingTensorDoesNotFit) {
  const Checkpoint checkpoint = save(TinyState(at::kDouble, {{3}}));
  const TinyState other(at::kFloat, {{3}, {4}});
  const std::string error = error_of([&] { load_checkpoint(env, checkpoint, other.tensors()); });
  EXPECT_THAT(error, HasSubstr("\n  layer.0.weight: F64 [3] in the checkpoint, F32 [3] in the model\n"));
  EXPECT_THAT(error, HasSubstr("\n  exp_avg.layer.1.weight: not in the checkpoint\n"));
}

TEST_F(Load, WeightsAloneLeaveTheOptimizerOut) {
  TinyState state, loaded;
  const Checkpoint checkpoint = save(state.fill(4));
  load_weights(env, checkpoint, loaded.params());
  for (size_t i = 0; i < state.tensors().size(); ++i) {
    const bool is_weight = state.tensors()[i].kind == kWeight;
    EXPECT_EQ(at::equal(loaded.tensors()[i].data, state.tensors()[i].data), is_weight);
  }
  const TinyState smaller(at::kFloat, {{7, 13}, {11}, {1}});
  EXPECT_THAT(
      error_of([&] { load_weights(env, checkpoint, smaller.params()); }),
      HasSubstr("fit the model:\n  layer.3.weight: in the checkpoint, but not in the model\nContinue"));
}

}  // namespace
}  // namespace weft
