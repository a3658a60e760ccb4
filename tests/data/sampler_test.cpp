#include "weft/data/sampler.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/base/safetensors.h"
#include "weft/data/shuffled_order.h"

#include "tests/base/temporary_dir.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Documents of the given lengths; token values count up from `first`.
void write_counting(const std::string& prefix, const std::vector<int>& lengths, int32_t first = 0) {
  IndexedDatasetWriter writer(prefix, 1000);
  for (int length : lengths) {
    std::vector<int32_t> ids(size_t(length), 0);
    std::iota(ids.begin(), ids.end(), first);
    first += length;
    writer.append(ids);
    writer.end_document();
  }
  writer.finish();
}

std::vector<int64_t> read(const SampleSource& source, int64_t index, int64_t seq_len) {
  std::vector<int64_t> out(size_t(seq_len) + 1);
  source.read(index, out);
  return out;
}

Config indexed_config(const std::vector<std::string>& train, int64_t seq_len, double valid_fraction) {
  Config config;
  config.data.train = train;
  config.data.valid_fraction = valid_fraction;
  config.data.shuffle = false;
  config.train.seq_len = seq_len;
  config.model.vocab_size = 1000;
  return config;
}

class SamplerTest : public ::testing::Test {
 protected:
  TemporaryDir dir_;
};

TEST_F(SamplerTest, WindowsOverlapByOneToken) {
  write_counting(dir_ / "d", {4, 0, 7});
  const auto source = open_train(indexed_config({dir_ / "d"}, 3, 0));
  ASSERT_EQ(source->size(), 3);  // (11 - 1) / 3
  EXPECT_THAT(read(*source, 0, 3), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(read(*source, 1, 3), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(read(*source, 2, 3), ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(read(*source, 3, 3), ElementsAre(0, 1, 2, 3));  // the next epoch
}

TEST_F(SamplerTest, DatasetsAreLaidEndToEnd) {
  write_counting(dir_ / "a", {2, 3}, 0);
  write_counting(dir_ / "empty", {});
  write_counting(dir_ / "b", {1, 5}, 5);
  const TokenStream stream({dir_ / "a", dir_ / "empty", dir_ / "b"});
  EXPECT_EQ(stream.documents(), 4);
  EXPECT_EQ(stream.tokens(), 11);
  EXPECT_EQ(stream.document_begin(2), 5);
  EXPECT_EQ(stream.document_begin(3), 6);
  EXPECT_EQ(stream.document_begin(4), 11);
  std::vector<int64_t> all(11), expected(11);
  std::iota(expected.begin(), expected.end(), 0);
  stream.read(0, all);
  EXPECT_EQ(all, expected);
  EXPECT_THAT(stream.place(7), AllOf(HasSubstr("b.bin"), HasSubstr("token 2")));
}

TEST_F(SamplerTest, LastDocumentsAreForValidation) {
  const auto train_tokens = [&](const std::vector<int>& lengths, double fraction) {
    write_counting(dir_ / "d", lengths);
    return TokenStream({dir_ / "d"}).train_tokens(fraction);
  };
  EXPECT_EQ(train_tokens({10, 10, 10, 10, 10, 10, 10, 10, 10, 10}, 0.25), 70);  // round(2.5) = 3 documents
  EXPECT_EQ(train_tokens({10, 20}, 0.001), 10);                                 // at least one
  EXPECT_EQ(train_tokens({10, 20}, 0.99), 10);                                  // never all
  EXPECT_EQ(train_tokens({10, 20}, 0), 30);
  EXPECT_EQ(train_tokens({200}, 0.05), 190);  // one document is cut
}

TEST_F(SamplerTest, TrainAndValidationShareNoToken) {
  write_counting(dir_ / "d", {40, 30, 30});
  const Config config = indexed_config({dir_ / "d"}, 4, 0.4);
  const auto train = open_train(config);
  const auto valid = std::move(open_valid(config).at(0).samples);
  EXPECT_EQ(train->size(), 17);
  EXPECT_EQ(valid->size(), 7);
  EXPECT_THAT(read(*train, 16, 4), ElementsAre(64, 65, 66, 67, 68));
  EXPECT_THAT(read(*valid, 0, 4), ElementsAre(70, 71, 72, 73, 74));
}

TEST_F(SamplerTest, ValidationOfItsOwnLeavesTrainingWhole) {
  write_counting(dir_ / "t", {10, 11});
  write_counting(dir_ / "v", {9}, 500);
  Config config = indexed_config({dir_ / "t"}, 4, 0.5);
  config.data.valid = {dir_ / "v"};
  EXPECT_EQ(open_train(config)->size(), 5);
  ASSERT_EQ(open_valid(config).size(), 1u);
  EXPECT_EQ(open_valid(config)[0].samples->size(), 2);
  EXPECT_THAT(read(*open_valid(config)[0].samples, 1, 4), ElementsAre(504, 505, 506, 507, 508));
  config.data.valid = {};
  config.data.valid_fraction = 0;
  EXPECT_TRUE(open_valid(config).empty());
}

TEST_F(SamplerTest, ValidationSourcesAreApartAndNamedByTheirPaths) {
  Config config = indexed_config({dir_ / "t"}, 4, 0);
  const std::vector<std::string> names = {"books/valid", "web/valid", "code"};
  for (const std::string& name : names) {
    std::filesystem::create_directories(std::filesystem::path(dir_ / name).parent_path());
    config.data.valid.push_back(dir_ / name);
    write_counting(config.data.valid.back(), {7}, 100 * int64_t(config.data.valid.size()));
  }
  const auto sources = open_valid(config);
  ASSERT_EQ(sources.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(sources[i].name, names[i]);
    EXPECT_EQ(sources[i].samples->size(), 1) << "none reaches into the next";
    EXPECT_EQ(read(*sources[i].samples, 0, 4)[0], 100 * int64_t(i + 1));
  }
  config.train.seq_len = 7;
  EXPECT_THAT([&] { open_valid(config); },
              ThrowsMessage<Error>(HasSubstr("data.valid = " + (dir_ / "books/valid"))));
}

TEST_F(SamplerTest, ShuffledOrderIsThatOfTheGlobalIndex) {
  write_counting(dir_ / "d", {101});
  Config config = indexed_config({dir_ / "d"}, 4, 0);
  config.data.shuffle = true;
  config.data.seed = 77;
  const auto source = open_train(config);
  ASSERT_EQ(source->size(), 25);
  for (int64_t index = 0; index < 75; ++index) {
    EXPECT_EQ(read(*source, index, 4)[0], 4 * ShuffledOrder(77, 25)(index)) << index;
  }
}

TEST_F(SamplerTest, TooFewTokensSayWhatWouldDo) {
  write_counting(dir_ / "d", {5, 8});
  EXPECT_THAT([&] { open_train(indexed_config({dir_ / "d"}, 13, 0)); },
              ThrowsMessage<Error>(AllOf(HasSubstr("13 tokens"), HasSubstr("train.seq_len + 1 = 14"),
                                         HasSubstr("train.seq_len to 12"))));
  EXPECT_EQ(open_train(indexed_config({dir_ / "d"}, 12, 0))->size(), 1);
  EXPECT_THAT([&] { open_valid(indexed_config({dir_ / "d"}, 12, 0.5)); },
              ThrowsMessage<Error>(AllOf(HasSubstr("data.valid_fraction"), HasSubstr("8 tokens"))));
  write_counting(dir_ / "none", {});
  EXPECT_THAT([&] { open_train(indexed_config({dir_ / "none"}, 4, 0)); },
              ThrowsMessage<Error>(HasSubstr("0 tokens")));
}

TEST_F(SamplerTest, IdsOutsideTheVocabularyAreFoundAndPlaced) {
  write_counting(dir_ / "d", {20});
  Config config = indexed_config({dir_ / "d"}, 4, 0);
  config.model.vocab_size = 10;
  const auto source = open_train(config);
  EXPECT_THAT(read(*source, 1, 4), ElementsAre(4, 5, 6, 7, 8));
  EXPECT_THAT([&] { read(*source, 2, 4); },
              ThrowsMessage<Error>(AllOf(HasSubstr("d.bin, token 10"), HasSubstr("vocabulary of 10"))));
}

class TokenTensorTest : public SamplerTest {
 protected:
  /// tokens[step, sequence, at] = 100 step + 10 sequence + at, in a file of the given type.
  template <class T>
  std::string write(const std::string& dtype, int64_t steps, int64_t sequences, int64_t tokens, T last = -1) {
    std::vector<T> values;
    for (int64_t step = 0; step < steps; ++step)
      for (int64_t sequence = 0; sequence < sequences; ++sequence)
        for (int64_t at = 0; at < tokens; ++at) values.push_back(T(100 * step + 10 * sequence + at));
    if (last != -1) values.back() = last;
    write_safetensors(Env::system(), dir_ / "t.safetensors",
                      {{"tokens", dtype, {steps, sequences, tokens}, std::as_bytes(std::span(values))}});
    return dir_ / "t.safetensors";
  }

  Config config(const std::string& path, int64_t seq_len, int64_t global_batch, int64_t steps) {
    Config config = indexed_config({path}, seq_len, 0.05);
    config.data.format = "tensor";
    config.train.global_batch = global_batch;
    config.train.steps = steps;
    return config;
  }
};

TEST_F(TokenTensorTest, ReadsStepsInOrder) {
  for (const auto& path : {write<int64_t>("I64", 3, 2, 5), write<int32_t>("I32", 3, 2, 5)}) {
    const auto source = open_train(config(path, 4, 2, 3));
    EXPECT_EQ(source->size(), 6);
    EXPECT_THAT(read(*source, 0, 4), ElementsAre(0, 1, 2, 3, 4));
    EXPECT_THAT(read(*source, 5, 4), ElementsAre(210, 211, 212, 213, 214));
  }
  EXPECT_TRUE(open_valid(config(dir_ / "t.safetensors", 4, 2, 3)).empty());
}

TEST_F(TokenTensorTest, ShapesThatDoNotFitSayWhatWould) {
  const std::string path = write<int64_t>("I64", 3, 2, 5);
  const auto open = [&](int64_t seq_len, int64_t batch, int64_t steps) {
    return [=, this] { open_train(config(path, seq_len, batch, steps)); };
  };
  EXPECT_THAT(open(5, 2, 3),
              ThrowsMessage<Error>(AllOf(HasSubstr("[3, 2, 5]"), HasSubstr("train.seq_len = 4"))));
  EXPECT_THAT(open(4, 4, 3), ThrowsMessage<Error>(HasSubstr("train.global_batch to 2, not 4")));
  EXPECT_THAT(open(4, 2, 4), ThrowsMessage<Error>(HasSubstr("train.steps to 3 at most, not 4")));
  write_safetensors(Env::system(), path, {{"ids", "I64", {0}, {}}});
  EXPECT_THAT(open(4, 2, 3), ThrowsMessage<Error>(HasSubstr("tokens")));
  const std::vector<float> floats(10);
  write_safetensors(Env::system(), path, {{"tokens", "F32", {1, 2, 5}, std::as_bytes(std::span(floats))}});
  EXPECT_THAT(open(4, 2, 1), ThrowsMessage<Error>(HasSubstr("F32")));
  write_safetensors(Env::system(), path, {{"tokens", "I64", {5}, std::as_bytes(std::span(floats))}});
  EXPECT_THAT(open(4, 2, 1), ThrowsMessage<Error>(HasSubstr("[5]")));
}

TEST_F(TokenTensorTest, ARampTakesItsSamplesFromTheSameRows) {
  Config ramped = config(write<int64_t>("I64", 3, 2, 5), 4, 3, 3);
  ramped.train.batch_ramp_start = 1, ramped.train.batch_ramp_increment = 1,
  ramped.train.batch_ramp_samples = 4;
  EXPECT_NO_THROW(open_train(ramped)) << "1 + 1 + 2 sequences of 6";
  ramped.train.steps = 4;
  EXPECT_THAT([&] { open_train(ramped); },
              ThrowsMessage<Error>(AllOf(HasSubstr("holds 6 sequences"), HasSubstr("take 7"))));
}

TEST_F(TokenTensorTest, IdsOutsideTheVocabularyArePlaced) {
  for (const auto& path : {write<int64_t>("I64", 3, 2, 5, 1000), write<int32_t>("I32", 3, 2, 5, 1000)}) {
    EXPECT_THAT(
        [&] { open_train(config(path, 4, 2, 3)); },
        ThrowsMessage<Error>(AllOf(HasSubstr("tokens[2, 1, 4] is 1000"), HasSubstr("vocabulary of 1000"))));
  }
  EXPECT_THAT([&] { open_train(config(write<int64_t>("I64", 1, 1, 5, -7), 4, 1, 1)); },
              ThrowsMessage<Error>(HasSubstr("tokens[0, 0, 4] is -7")));
}

}  // namespace
}  // namespace weft
