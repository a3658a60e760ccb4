#include "weft/data/bpe_train.h"

#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/data/byte_level.h"
#include "weft/data/tokenizer.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Json = nlohmann::json;

TrainedTokenizer train(std::string_view text, int64_t vocab_size) {
  BpeTrainer trainer(vocab_size);
  trainer.add_text(text);
  return trainer.train();
}

/// The definition, without any bookkeeping: recount every pair of every word for each merge.
std::vector<std::string> naive_merges(const std::map<std::string, int>& words, int n_merges) {
  std::map<std::string, int> id_of;
  std::vector<std::string> token_of;
  const auto id = [&](const std::string& token) {
    if (id_of.try_emplace(token, int(token_of.size())).second) token_of.push_back(token);
    return id_of[token];
  };
  for (uint8_t byte : byte_level_order()) id(std::string(1, char(byte)));
  std::vector<std::pair<std::vector<int>, int>> split;
  for (const auto& [word, count] : words) {
    split.push_back({{}, count});
    for (char byte : word) split.back().first.push_back(id(std::string(1, byte)));
  }
  std::vector<std::string> merges;
  while (int(token_of.size()) < 256 + n_merges) {
    std::map<std::pair<int, int>, int> counts;
    for (const auto& [symbols, count] : split) {
      for (size_t at = 1; at < symbols.size(); ++at) counts[{symbols[at - 1], symbols[at]}] += count;
    }
    std::pair<int, int> best;
    int most = 1;
    for (const auto& [pair, count] : counts) {
      if (count > most) most = count, best = pair;
    }
    if (most < 2) break;
    merges.push_back(token_of[best.first] + " " + token_of[best.second]);
    const int merged = id(token_of[best.first] + token_of[best.second]);
    for (auto& [symbols, count] : split) {
      std::vector<int> out;
      for (size_t at = 0; at < symbols.size(); ++at) {
        const bool here =
            at + 1 < symbols.size() && symbols[at] == best.first && symbols[at + 1] == best.second;
        out.push_back(here ? merged : symbols[at]);
        at += here;
      }
      symbols = out;
    }
  }
  return merges;
}

TEST(BpeTrainTest, MergesTheMostFrequentPairFirst) {
  // "ab" occurs 3 times, "bc" and "cd" twice; of those "bc" has the lower ids, but "ab" has taken its b's.
  const Json json = Json::parse(train("abcd abcd ab", 300).json);
  EXPECT_EQ(json["model"]["merges"][0], (Json{"a", "b"}));
  EXPECT_EQ(json["model"]["vocab"]["!"], 0);
  EXPECT_EQ(json["model"]["vocab"]["Ń"], 255);
  EXPECT_EQ(json["model"]["vocab"]["ab"], 256);
}

TEST(BpeTrainTest, EqualCountsGoToTheLowestIds) {
  const Json json = Json::parse(train("zy\nzy\nab\nab\n", 300).json);
  EXPECT_EQ(json["model"]["merges"][0], (Json{"a", "b"}));
  EXPECT_EQ(json["model"]["merges"][1], (Json{"z", "y"}));
}

TEST(BpeTrainTest, EqualsTheDefinition) {
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    // Few letters and long words: many overlaps ("aaaa"), ties, and tokens that merge in two ways.
    std::map<std::string, int> words;
    std::string text;
    for (int n = 0; n < 60; ++n) {
      std::string word;
      for (size_t length = 1 + random() % 9; word.size() < length;)
        word += char('a' + random() % (2 + round % 3));
      if (words[word]++ == 0 && random() % 2) words[word] += 1, text += word + "\n";
      text += word + "\n";
    }
    words["\n"] = 2;  // counted, but too short to be merged
    std::vector<std::string> got;
    const Json json = Json::parse(train(text, 257 + 80).json);
    for (const Json& merge : json["model"]["merges"]) {
      got.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
    ASSERT_EQ(got, naive_merges(words, 80)) << round;
  }
}

TEST(BpeTrainTest, TheResultIsATokenizer) {
  std::string text;
  for (int n = 0; n < 200; ++n) text += fmt::format("The people's house, number {}. ", n % 7);
  const TrainedTokenizer trained = train(text, 280);
  EXPECT_EQ(trained.vocab_size, 280);
  const Tokenizer tokenizer = Tokenizer::parse(trained.json, "trained");
  EXPECT_EQ(tokenizer.vocab_size(), 280);
  EXPECT_EQ(tokenizer.eos_id(), 279);
  EXPECT_LT(tokenizer.encode(text).size() * 3, text.size());
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(BpeTrainTest, OrderOfTextsDoesNotMatter) {
  BpeTrainer forward(400), backward(400);
  const std::vector<std::string> texts = {"one two three two", "two words \xFF\xFF\xFF",
                                          "three three words one"};
  for (size_t at = 0; at < texts.size(); ++at) {
    forward.add_text(texts[at]);
    backward.add_text(texts[texts.size() - 1 - at]);
  }
  EXPECT_EQ(forward.train().json, backward.train().json);
}

TEST(BpeTrainTest, TooLittleTextGivesASmallerVocabulary) {
  EXPECT_EQ(train("ab ab", 1000).vocab_size, 258);  // "ab" is the only repeated pair
  EXPECT_EQ(train("x", 257).vocab_size, 257);
}

TEST(BpeTrainTest, LongRunsAndLongWordsStayFast) {
  std::string run(1 << 20, 'a'), letters;
  std::mt19937 random(2);
  while (letters.size() < 1 << 20) letters += char('a' + random() % 26);
  EXPECT_EQ(train(run, 257 + 10).vocab_size, 267);
  EXPECT_EQ(train(letters, 1000).vocab_size, 1000);
}

TEST(BpeTrainTest, ImpossibleRequestsAreErrors) {
  EXPECT_THAT([] { BpeTrainer trainer(256); }, ThrowsMessage<Error>(HasSubstr("257")));
  EXPECT_THAT([] { BpeTrainer trainer(int64_t(1) << 40); }, ThrowsMessage<Error>(HasSubstr("too large")));
  EXPECT_THAT([] { train("", 300); }, ThrowsMessage<Error>(HasSubstr("no text")));
}

}  // namespace
}  // namespace weft
