#include <cmath>
#include <limits>
#include <numeric>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/optim/update_rule.h"
#include "weft/train/batch.h"
#include "weft/train/flops.h"
#include "weft/train/guard.h"
#include "weft/train/process.h"

#include "tests/base/temporary_dir.h"

namespace weft {
namespace {

using testing::ElementsAre;

// Sample i is the numbers from 10 i on, with 0 (the separator) where a value is divisible by 7.
class Counting : public SampleSource {
 public:
  int64_t size() const override { return 1000; }
  void read(int64_t index, std::span<int64_t> out) const override {
    std::iota(out.begin(), out.end(), 10 * index);
    for (int64_t& value : out) value = value % 7 == 0 ? 0 : value;
  }
};

std::vector<int64_t> values(const at::Tensor& x) {
  return {x.data_ptr<int64_t>(), x.data_ptr<int64_t>() + x.numel()};
}

TEST(MicroBatches, AreFlatWithDocumentBoundaries) {
  const auto batches = make_micro_batches(Counting(), 1, 3, {.seq_len = 5, .micro_batch = 2, .separator = 0});
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_THAT(values(batches[0].tokens), ElementsAre(10, 11, 12, 13, 0, 20, 0, 22, 23, 24));
  EXPECT_THAT(values(batches[0].labels), ElementsAre(11, 12, 13, 0, 15, 0, 22, 23, 24, 25));
  EXPECT_THAT(values(batches[0].positions), ElementsAre(0, 1, 2, 3, 0, 0, 0, 1, 2, 3));
  EXPECT_THAT(batches[0].cu_seqlens, ElementsAre(0, 4, 5, 6, 10));
  EXPECT_THAT(values(batches[1].index), ElementsAre(10, 11, 12, 13, 14));
  EXPECT_THAT(batches[1].cu_seqlens, ElementsAre(0, 5));
  EXPECT_EQ(count_targets(batches), 15);
}

TEST(MicroBatches, WithoutSeparatorASequenceIsADocument) {
  const auto batches = make_micro_batches(Counting(), 0, 2, {.seq_len = 8, .micro_batch = 9});
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_THAT(batches[0].cu_seqlens, ElementsAre(0, 8, 16));
}

// Every other token is only input.
class HalfTargets : public Counting {
 public:
  void read(int64_t index, std::span<int64_t> out) const override {
    Counting::read(index, out);
    for (int64_t& value : out) value = value % 2 == 0 ? ~value : value;
  }
};

TEST(MicroBatches, TokensThatAreOnlyInputHaveNoLabel) {
  const auto batches =
      make_micro_batches(HalfTargets(), 1, 1, {.seq_len = 5, .micro_batch = 1, .separator = 0});
  EXPECT_THAT(values(batches[0].tokens), ElementsAre(10, 11, 12, 13, 0));
  EXPECT_THAT(values(batches[0].labels), ElementsAre(11, kIgnoredLabel, 13, kIgnoredLabel, 15));
  EXPECT_THAT(batches[0].cu_seqlens, ElementsAre(0, 4, 5)) << "a document begins there nevertheless";
  EXPECT_EQ(count_targets(batches), 3);
}

TEST(MicroBatches, DataRanksShareTheSequencesAndRunAsManyMicroBatches) {
  for (const int64_t ranks : {1, 2, 3, 5, 8}) {
    std::vector<int64_t> tokens, index;
    size_t batches_of_first = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const auto batches = make_micro_batches(
          Counting(), 2, 7, {.seq_len = 5, .micro_batch = 2, .data_rank = rank, .data_ranks = ranks});
      if (rank == 0) batches_of_first = batches.size();
      EXPECT_EQ(batches.size(), batches_of_first);
      for (const MicroBatch& batch : batches) {
        if (count_targets({batch}) == 0) continue;  // nothing to learn
        for (const int64_t token : values(batch.tokens)) tokens.push_back(token);
        for (const int64_t place : values(batch.index)) index.push_back(place);
      }
    }
    const auto whole = make_micro_batches(Counting(), 2, 7, {.seq_len = 5, .micro_batch = 7});
    EXPECT_EQ(tokens, values(whole[0].tokens)) << ranks;
    EXPECT_EQ(index, values(whole[0].index)) << ranks;
  }
}

TEST(StepGuard, CatchesWhatIsNotFiniteAndSpikes) {
  TrainConfig train;
  train.spike_factor = 5;
  StepGuard guard(train);
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(guard.check(nan, 1), "the loss is nan");
  EXPECT_EQ(guard.check(1, inf), "the gradient norm is inf");
  guard.skipped(), guard.skipped();
  EXPECT_EQ(guard.consecutive_bad(), 2);
  for (int i = 0; i < 20; ++i) guard.applied(2);
  EXPECT_EQ(guard.consecutive_bad(), 0);
  EXPECT_EQ(guard.check(1, 9.9), "");
  guard.applied(9.9);
  const std::string spike = guard.check(1, 100);
  guard.skipped();
  EXPECT_THAT(spike, testing::HasSubstr("above 5 times its mean"));

  StepGuard resumed(train);
  resumed.restore(nlohmann::json::parse(guard.state().dump()));
  EXPECT_EQ(resumed.consecutive_bad(), 1);
  EXPECT_EQ(resumed.check(1, 100), guard.check(1, 100));
  EXPECT_EQ(resumed.state(), guard.state());
}

TEST(StepGuard, JudgesNoSpikesWhenOffOrTooEarly) {
  StepGuard off{TrainConfig{}};
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(off.check(1, std::pow(10, i % 5)), "");
    off.applied(std::pow(10, i % 5));
  }
  TrainConfig train;
  train.spike_factor = 2;
  StepGuard early(train);
  early.applied(1);
  EXPECT_EQ(early.check(1, 1000), "");
}

TEST(Flops, AreSixPerWeightAndHalfTheAttention) {
  ModelConfig model;
  model.n_layers = 2, model.dim = 8, model.n_heads = 2, model.ffn_dim = 16, model.vocab_size = 10;
  model.tie_embeddings = false;
  resolve(&model);
  const double layers = 2 * (4 * 8 * 8 + 3 * 8 * 16 + 2 * 8), head = 8 + 10 * 8;
  const double attention = 2 * 3 * 4 * (64 / 2.0) * 8;
  EXPECT_DOUBLE_EQ(model_flops_per_token(Decoder(model, at::kFloat), 64), 6 * (layers + head) + attention);
  model.tie_embeddings = true;
  EXPECT_DOUBLE_EQ(model_flops_per_token(Decoder(model, at::kFloat), 64), 6 * (layers + head) + attention);
  model.layer_types = {"sliding"},
  model.sliding_window = 64;  // the window is the sequence: as full attention
  EXPECT_DOUBLE_EQ(model_flops_per_token(Decoder(model, at::kFloat), 64), 6 * (layers + head) + attention);
}

TEST(Flops, AreFewerForWhatIsFrozen) {
  ModelConfig model;
  model.n_layers = 2, model.dim = 8, model.n_heads = 2, model.ffn_dim = 16, model.vocab_size = 10;
  model.tie_embeddings = false;
  resolve(&model);
  const Decoder decoder(model, at::kFloat);
  OptimConfig optim;
  optim.freeze = {"embed", "layers.0", "layers.1.*mlp"};
  set_update_rules(optim, decoder.params());
  // Layer 0 only computes forward; the second one's MLP passes the gradient on without one of its own.
  const double attention_weights = 4 * 8 * 8, mlp = 3 * 8 * 16, norms = 2 * 8, head = 8 + 10 * 8;
  const double attention = 4 * (64 / 2.0) * 8;
  EXPECT_DOUBLE_EQ(model_flops_per_token(decoder, 64), 2 * (attention_weights + mlp + norms) + attention +
                                                           6 * (attention_weights + norms) + 4 * mlp +
                                                           3 * attention + 6 * head);
}

}  // namespace
}  // namespace weft
