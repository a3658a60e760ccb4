#include "weft/checkpoint/checkpoint.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/safetensors.h"

#include "tests/base/error_of.h"
#include "tests/base/fault_env.h"
#include "tests/base/temporary_dir.h"
#include "tests/checkpoint/tiny_state.h"

namespace weft {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Checkpoints : public testing::Test {
 protected:
  void save(int64_t step, int64_t keep_last = 0) { save(step, TinyState().fill(uint64_t(step)), keep_last); }
  void save(int64_t step, const TinyState& state, int64_t keep_last = 0) {
    save_checkpoint(env, root, step, {{"data_position", step * 16}}, state.tensors(), keep_last);
  }
  std::optional<Checkpoint> find() {
    return find_checkpoint(env, root, [this](const std::string& line) { warnings.push_back(line); });
  }
  /// Whether `checkpoint` is exactly what save() wrote at `step` from values of `seed`.
  bool holds(const Checkpoint& checkpoint, int64_t step, uint64_t seed) {
    TinyState loaded;
    load_checkpoint(env, checkpoint, loaded.tensors());
    return checkpoint.step == step && checkpoint.state == json{{"data_position", step * 16}} &&
           loaded.same_bits(TinyState().fill(seed));
  }
  std::string file(int64_t step, const std::string& name) {
    return root + "/" + step_name(step) + "/" + name;
  }

  FaultEnv env;
  TemporaryDir dir;
  std::string root = dir / "run/checkpoints";
  std::vector<std::string> warnings;
};

TEST_F(Checkpoints, NoneAtAllIsNoError) { EXPECT_FALSE(find().has_value()); }

TEST_F(Checkpoints, LoadExactlyWhatWasSaved) {
  save(100);
  const auto checkpoint = find();
  ASSERT_TRUE(checkpoint.has_value());
  EXPECT_EQ(checkpoint->dir, root + "/step-00000100");
  EXPECT_TRUE(holds(*checkpoint, 100, 100));
  EXPECT_THAT(warnings, IsEmpty());
  EXPECT_THAT(env.list(root), ElementsAre("step-00000100"));
  EXPECT_THAT(env.list(root + "/step-00000100"), ElementsAre("index.json", "rank-00000.safetensors"));
}

TEST_F(Checkpoints, KeepFp64AndSpecialValues) {
  TinyState state(at::kDouble);
  state.fill(1);
  double* values = state.tensors()[0].data.mutable_data_ptr<double>();
  values[0] = -0.0, values[1] = std::nan("7"), values[2] = std::numeric_limits<double>::denorm_min();
  values[3] = -std::numeric_limits<double>::infinity(), values[4] = 1.0 / 3;
  save(1, state);
  TinyState loaded(at::kDouble);
  load_checkpoint(env, *find(), loaded.tensors());
  EXPECT_TRUE(loaded.same_bits(state));
}

TEST_F(Checkpoints, KeepTheNumbersOfTheState) {
  const json state = {{"smallest", std::numeric_limits<int64_t>::min()},
                      {"seed", std::numeric_limits<uint64_t>::max()},
                      {"third", 1.0 / 3},
                      {"denormal", std::numeric_limits<double>::denorm_min()},
                      {"text", "\"\n\u00fc"},
                      {"one", 1.0}};
  save_checkpoint(env, root, 5, state, {}, 0);
  const json found = find()->state;
  EXPECT_EQ(found, state);
  EXPECT_EQ(found["third"].get<double>(), 1.0 / 3);
  EXPECT_EQ(found["seed"].get<uint64_t>(), std::numeric_limits<uint64_t>::max());
  EXPECT_TRUE(found["one"].is_number_float());
}

TEST_F(Checkpoints, RefuseAStateThatJsonCannotHold) {
  EXPECT_THROW(save_checkpoint(env, root, 5, {{"mean", std::nan("")}}, {}, 0), std::logic_error);
}

TEST_F(Checkpoints, AreHuggingFaceFilesWithTheOptimizerBeside) {
  const TinyState state(at::kFloat, {{2, 3}});
  save(7, state);
  const SafetensorsFile rank_file(env, file(7, "rank-00000.safetensors"));
  EXPECT_THAT(rank_file.info("layer.0.weight").shape, ElementsAre(2, 3));
  EXPECT_TRUE(rank_file.contains("exp_avg.layer.0.weight"));
  EXPECT_TRUE(rank_file.contains("exp_avg_sq.layer.0.weight"));
  EXPECT_EQ(rank_file.header().metadata.at("format"), "pt");
  const json boxes = json::parse(rank_file.header().metadata.at("boxes"));
  EXPECT_EQ(boxes.at("exp_avg.layer.0.weight"),
            json::parse(R"({"kind": "exp_avg", "name": "layer.0.weight", "begin": [0, 0], "end": [2, 3]})"));
}

TEST_F(Checkpoints, TheIndexIsOneJsonObjectWithItsChecksumLast) {
  const TinyState state(at::kFloat, {{2}});
  save_checkpoint(env, root, 7, {{"tokens", 12}}, {state.tensors()[0]}, 0);
  const std::string rank_file = env.read(file(7, "rank-00000.safetensors"));
  const std::string body =
      "{\n\"version\": 1,\n\"step\": 7,\n\"files\": [{\"bytes\":" + std::to_string(rank_file.size()) +
      ",\"checksum\":\"" + checksum(std::as_bytes(std::span(rank_file))) +
      "\",\"name\":\"rank-00000.safetensors\"}],\n\"tensors\": {\"weight\":{\"layer.0.weight\":"
      "{\"dtype\":\"F32\",\"shape\":[2]}}},\n\"state\": {\"tokens\":12}";
  EXPECT_EQ(env.read(file(7, "index.json")),
            body + ",\n\"checksum\": \"" + checksum(std::as_bytes(std::span(body))) + "\"\n}\n");
  EXPECT_TRUE(json::accept(env.read(file(7, "index.json"))));
}

TEST_F(Checkpoints, TheNewestByNumberIsFound) {
  for (const int64_t step : {100'000'000, 99'999'999, 5}) save(step);
  EXPECT_TRUE(holds(*find(), 100'000'000, 100'000'000));
}

TEST_F(Checkpoints, KeepLastDeletesOlderOnesOnly) {
  for (const int64_t step : {1, 2, 3, 9}) save(step);
  save(4, 2);
  EXPECT_THAT(env.list(root), ElementsAre("step-00000003", "step-00000004", "step-00000009"));
  save(5, 1);
  EXPECT_THAT(env.list(root), ElementsAre("step-00000005", "step-00000009"));
}

TEST_F(Checkpoints, LeftoversGoAtTheNextSave) {
  for (const char* name : {".tmp-step-00000003", ".trash-step-00000001"}) {
    env.create_dirs(root + "/" + name);
    env.create(root + "/" + name + "/rank-00000.safetensors")->append("half");
  }
  EXPECT_FALSE(find().has_value());
  save(4);
  EXPECT_THAT(env.list(root), ElementsAre("step-00000004"));
}

TEST_F(Checkpoints, TheSameStepIsReplaced) {
  save(3);
  save(4);
  save(4, TinyState().fill(44));
  EXPECT_THAT(env.list(root), ElementsAre("step-00000003", "step-00000004"));
  EXPECT_TRUE(holds(*find(), 4, 44));
}

TEST_F(Checkpoints, EveryFlippedBitIsFoundAndNamedAndThePreviousOneUsed) {
  save(90);
  save(100);
  for (const char* name : {"index.json", "rank-00000.safetensors"}) {
    const std::string path = file(100, name);
    const uint64_t size = env.read(path).size();
    for (uint64_t bit = 0; bit < 8 * size; ++bit) {
      FaultEnv::flip_bit(path, bit / 8, int(bit % 8));
      const std::string error = error_of([&] { open_checkpoint(env, root + "/step-00000100"); });
      FaultEnv::flip_bit(path, bit / 8, int(bit % 8));
      ASSERT_THAT(error, testing::AllOf(HasSubstr(path), HasSubstr("the file is damaged"))) << "bit " << bit;
    }
  }
  const std::string path = file(100, "rank-00000.safetensors");
  FaultEnv::flip_bit(path, 1000);
  EXPECT_TRUE(holds(*find(), 90, 90));
  EXPECT_THAT(
      warnings,
      ElementsAre(testing::MatchesRegex(
          path + ": checksum [0-9a-f]+, expected [0-9a-f]+: the file is damaged; using step-00000090")));
}

TEST_F(Checkpoints, ShortAndMissingFilesAreDamage) {
  save(80);
  for (const int64_t step : {90, 100, 110, 120}) save(step);
  std::filesystem::resize_file(file(90, "rank-00000.safetensors"), 100);
  std::filesystem::remove(file(100, "rank-00000.safetensors"));
  std::filesystem::remove(file(110, "index.json"));
  std::filesystem::resize_file(file(120, "index.json"), 0);
  EXPECT_TRUE(holds(*find(), 80, 80));
  EXPECT_THAT(warnings,
              ElementsAre(HasSubstr("index.json: 0 bytes are too few"),
                          HasSubstr("step-00000110/index.json: No such file or directory"),
                          HasSubstr("step-00000100/rank-00000.safetensors: No such file or directory"),
                          HasSubstr("step-00000090/rank-00000.safetensors: 100 bytes, expected ")));
}

TEST_F(Checkpoints, AllDamagedIsAnError) {
  save(1);
  save(2);
  for (const int64_t step : {1, 2}) FaultEnv::flip_bit(file(step, "index.json"), 20);
  const std::string error = error_of([&] { find(); });
  EXPECT_THAT(error,
              HasSubstr(root + ": no checkpoint is intact:\n  " + file(2, "index.json") + ": its last line"));
  EXPECT_THAT(error, HasSubstr(file(1, "index.json")));
}

TEST_F(Checkpoints, ANewerFormatIsNotDamage) {
  save(1);
  save(2);
  std::string text = env.read(file(2, "index.json"));
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 2");
  const std::string body = text.substr(0, text.rfind(",\n\"checksum\""));
  const auto index = env.create(file(2, "index.json"));
  index->append(body + ",\n\"checksum\": \"" + checksum(std::as_bytes(std::span(body))) + "\"\n}\n");
  index->close();
  EXPECT_THAT(
      error_of([&] { find(); }),
      HasSubstr("index.json: written in version 2 of the format, and this weft reads 1: use a newer weft"));
}

TEST_F(Checkpoints, AFullDiskLeavesTheEarlierOnes) {
  save(1);
  uint64_t failures = 0;
  for (uint64_t room = 0;; room += 61) {
    env.fill_disk_after(room);
    const std::string error = error_of([&] { save(2, 1); });
    env.empty_disk();
    if (error == "no error") break;
    ++failures;
    EXPECT_THAT(error,
                testing::MatchesRegex("cannot save the checkpoint of step 2: cannot write " + root +
                                      "/.tmp-step-00000002/.*: No space left on device .*; the earlier "
                                      "checkpoints are untouched"));
    EXPECT_THAT(env.list(root), ElementsAre("step-00000001"));
    EXPECT_TRUE(holds(*find(), 1, 1));
  }
  EXPECT_GT(failures, 50u);
  EXPECT_TRUE(holds(*find(), 2, 2));
}

/// Flips a bit of the rank file between its write and the verification.
class BadDisk : public FaultEnv {
 public:
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    if (std::exchange(armed_, false)) flip_bit(path, 2000);
    return FaultEnv::map(path);
  }

 private:
  bool armed_ = true;
};

TEST_F(Checkpoints, WhatReadsBackWronglyIsNeverPublished) {
  save(1);
  BadDisk bad;
  EXPECT_THAT(error_of([&] { save_checkpoint(bad, root, 2, {}, TinyState().fill(2).tensors(), 1); }),
              HasSubstr("the file is damaged; the earlier checkpoints are untouched"));
  EXPECT_THAT(env.list(root), ElementsAre("step-00000001"));
}

/// Saves step `second` after `first` (none if 0), with the power cut after each possible number of
/// operations, and checks that the old or the new checkpoint is found each time, and that the next save
/// works.
void cut_power_everywhere(int64_t first, int64_t second) {
  uint64_t old_seen = 0, new_seen = 0;
  for (uint64_t operations = 0;; ++operations) {
    SCOPED_TRACE("operations: " + std::to_string(operations));
    const TemporaryDir dir;
    const std::string root = dir / "checkpoints";
    FaultEnv env;
    const auto save = [&](int64_t step, uint64_t seed) {
      save_checkpoint(env, root, step, {{"seed", seed}}, TinyState().fill(seed).tensors(), 1);
    };
    const auto check = [&](const Checkpoint& checkpoint, int64_t step, uint64_t seed) {
      EXPECT_EQ(checkpoint.step, step);
      EXPECT_EQ(checkpoint.state, (json{{"seed", seed}}));
      TinyState loaded;
      load_checkpoint(env, checkpoint, loaded.tensors());
      EXPECT_TRUE(loaded.same_bits(TinyState().fill(seed)));
    };
    const auto find = [&] {
      return find_checkpoint(env, root, [](const std::string& line) { ADD_FAILURE() << line; });
    };
    if (first > 0) save(first, 1);
    env.stop_after(operations);
    bool finished = true;
    try {
      save(second, 2);
    } catch (const PowerCut&) {
      finished = false;
    }
    env.power_on();
    env.drop_unsynced();

    const auto found = find();
    const bool is_new = found && found->state.at("seed") == 2;
    ASSERT_TRUE(found || first == 0);
    if (found) check(*found, is_new ? second : first, is_new ? 2 : 1);
    ++(is_new ? new_seen : old_seen);
    EXPECT_TRUE(is_new || !finished);

    save(second + 1, 3);
    check(*find(), second + 1, 3);
    EXPECT_THAT(env.list(root), ElementsAre(step_name(second + 1)));
    if (finished) break;
  }
  EXPECT_GT(old_seen, 10u);
  EXPECT_GE(new_seen, first > 0 ? 2u : 1u);  // deleting what came before follows the publication
}

TEST(CheckpointPowerCut, AnywhereInTheFirstSave) { cut_power_everywhere(0, 1); }
TEST(CheckpointPowerCut, AnywhereLeavesTheOldOrTheNew) { cut_power_everywhere(1, 2); }
TEST(CheckpointPowerCut, AnywhereInReplacingTheOnlyOne) { cut_power_everywhere(2, 2); }

}  // namespace
}  // namespace weft
