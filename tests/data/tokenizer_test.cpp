#include "weft/data/tokenizer.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/data/byte_level.h"
#include "weft/data/utf8.h"

namespace weft {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::string kDir = std::string(WEFT_FIXTURES) + "/tokenizers/";

Json mini_json() { return Json::parse(Env::system().read(kDir + "mini.tokenizer.json")); }
Tokenizer tokenizer_of(const Json& json) { return Tokenizer::parse(json.dump(), "mini"); }

std::string random_bytes(std::mt19937& random, size_t n) {
  static const std::vector<std::string> kPool = {" ",
                                                 "\n",
                                                 "\r\n",
                                                 "a",
                                                 "the ",
                                                 "\xC3\xA9",
                                                 "\xE6\x97\xA5",
                                                 "\xF0\x9F\x91\x8D",
                                                 "12345",
                                                 "'s",
                                                 std::string(1, '\0'),
                                                 "\x80",
                                                 "\xFF",
                                                 "\xE6\x97",
                                                 "\xC0",
                                                 "!?"};
  std::string bytes;
  while (bytes.size() < n) {
    bytes += random() % 3 == 0 ? std::string(1, char(random() % 256)) : kPool[random() % kPool.size()];
  }
  return bytes;
}

TEST(Utf8Test, AcceptsExactlyTheWellFormed) {
  // Against the definition: a code point in its shortest form that is no surrogate.
  const auto well_formed = [](const std::string& s) {
    const auto byte = [&](size_t at) { return uint32_t(uint8_t(s[at])); };
    const uint32_t point = s.size() == 2   ? (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F)
                           : s.size() == 3 ? (byte(0) & 0xF) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F)
                                           : byte(0);
    const uint32_t lead = s.size() == 2   ? byte(0) >> 5 == 6
                          : s.size() == 3 ? byte(0) >> 4 == 14
                                          : byte(0) < 0x80;
    bool tails = true;
    for (size_t at = 1; at < s.size(); ++at) tails = tails && byte(at) >> 6 == 2;
    const bool shortest = s.size() == 1 || point >= (s.size() == 2 ? 0x80u : 0x800u);
    return lead && tails && shortest && !(point >= 0xD800 && point <= 0xDFFF);
  };
  for (int a = 0; a < 256; ++a) {
    EXPECT_EQ(utf8_sequence(std::string(1, char(a))) == 1, well_formed(std::string(1, char(a)))) << a;
    for (int b = 0; b < 256; ++b) {
      const std::string two = {char(a), char(b)};
      EXPECT_EQ(utf8_sequence(two) == 2, well_formed(two)) << a << ' ' << b;
      for (int c : {0x00, 0x41, 0x7F, 0x80, 0xBF, 0xC0, 0xFF}) {
        const std::string three = {char(a), char(b), char(c)};
        EXPECT_EQ(utf8_sequence(three) == 3, well_formed(three)) << a << ' ' << b << ' ' << c;
      }
    }
  }
  EXPECT_EQ(utf8_sequence("\xF0\x90\x80\x80"), 4u);
  EXPECT_EQ(utf8_sequence("\xF0\x8F\xBF\xBF"), 0u);  // overlong
  EXPECT_EQ(utf8_sequence("\xF4\x8F\xBF\xBF"), 4u);  // U+10FFFF
  EXPECT_EQ(utf8_sequence("\xF4\x90\x80\x80"), 0u);
}

TEST(ByteLevelTest, IsTheAlphabetOfGpt2) {
  EXPECT_EQ(to_byte_level(" the\n"), "ĠtheĊ");
  EXPECT_EQ(to_byte_level(std::string("\0\xAD\x7F", 3)), "ĀŃġ");
  EXPECT_EQ(byte_level_order()[0], '!');
  EXPECT_EQ(byte_level_order()[188], 0);
  EXPECT_EQ(byte_level_order()[255], 0xAD);
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += char(byte);
  EXPECT_EQ(from_byte_level(to_byte_level(all)), all);
  EXPECT_EQ(from_byte_level("a b"), std::nullopt);
  EXPECT_EQ(from_byte_level("日"), std::nullopt);
  EXPECT_EQ(from_byte_level("\xC4"), std::nullopt);
}

TEST(TokenizerTest, GivesTheIdsOfTheHuggingFaceLibrary) {
  const Json expected = Json::parse(Env::system().read(kDir + "mini.expected.json"));
  for (const auto& [name, variant] : expected["variants"].items()) {
    Json json = mini_json();
    json["pre_tokenizer"] = variant["pre_tokenizer"];
    json["model"]["ignore_merges"] = variant["ignore_merges"];
    const Tokenizer tokenizer = tokenizer_of(json);
    for (size_t at = 0; at < expected["texts"].size(); ++at) {
      const std::string text = expected["texts"][at];
      const auto plain = tokenizer.encode(text);
      EXPECT_EQ(plain, variant["plain"][at].get<std::vector<int32_t>>()) << name << ": " << text;
      EXPECT_EQ(tokenizer.encode(text, SpecialTokens::kMatched),
                variant["matched"][at].get<std::vector<int32_t>>())
          << name << ": " << text;
      EXPECT_EQ(tokenizer.decode(plain), text);
    }
  }
}

TEST(TokenizerTest, ReadsMergesOfBothSpellings) {
  Json json = mini_json();
  for (Json& merge : json["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  const std::string text = "The government of the people";
  EXPECT_EQ(tokenizer_of(json).encode(text), tokenizer_of(mini_json()).encode(text));
  EXPECT_LT(tokenizer_of(json).encode(text).size(), text.size() / 2);
}

TEST(TokenizerTest, RoundTripsAnyBytes) {
  const Tokenizer tokenizer = tokenizer_of(mini_json());
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    const std::string bytes = random_bytes(random, random() % 80);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(bytes)), bytes) << round;
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(bytes, SpecialTokens::kMatched)), bytes) << round;
  }
  for (const std::string& bytes :
       {std::string(), std::string("x"), std::string("\xFF"), std::string(1 << 20, 'a'),
        std::string(1 << 20, ' '), std::string(1 << 20, '\xFF'), std::string(1 << 20, '\0')}) {
    EXPECT_TRUE(tokenizer.decode(tokenizer.encode(bytes)) == bytes) << bytes.size();
  }
}

TEST(TokenizerTest, TextCannotInjectSpecialTokens) {
  const Tokenizer tokenizer = tokenizer_of(mini_json());
  const int32_t end = *tokenizer.eos_id();
  const std::string text = "a<|endoftext|>b";
  EXPECT_THAT(tokenizer.encode(text), ::testing::Not(::testing::Contains(end)));
  EXPECT_THAT(tokenizer.encode(text, SpecialTokens::kMatched),
              ElementsAre(*tokenizer.id_of("a"), end, *tokenizer.id_of("b")));
  EXPECT_EQ(tokenizer.bytes_of(end), "<|endoftext|>");
}

TEST(TokenizerTest, SinkSeesEachPieceOnce) {
  const Tokenizer tokenizer = tokenizer_of(mini_json());
  std::vector<std::string> pieces;
  std::vector<int32_t> ids;
  tokenizer.encode("It's 42 \xFF\xFE!", SpecialTokens::kAsText,
                   [&](std::span<const int32_t> piece_ids, std::string_view piece) {
                     pieces.emplace_back(piece);
                     EXPECT_EQ(tokenizer.decode(piece_ids), piece);
                   });
  EXPECT_THAT(pieces, ElementsAre("It", "'s", " 42", " ", "\xFF\xFE", "!"));
}

TEST(TokenizerTest, IdsOutsideTheVocabularyAreErrors) {
  const Tokenizer tokenizer = tokenizer_of(mini_json());
  EXPECT_EQ(tokenizer.vocab_size(), 702);
  EXPECT_THAT([&] { tokenizer.decode(std::vector<int32_t>{702}); },
              ThrowsMessage<Error>(AllOf(HasSubstr("mini"), HasSubstr("702"), HasSubstr("0 to 701"))));
  EXPECT_THROW(tokenizer.bytes_of(-1), Error);
  EXPECT_EQ(tokenizer.id_of("no such token"), std::nullopt);
}

TEST(StreamDecoderTest, EmitsOnlyWholeCharacters) {
  const Tokenizer tokenizer = tokenizer_of(mini_json());
  const auto byte_id = [&](char byte) { return *tokenizer.id_of(to_byte_level(std::string(1, byte))); };
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(byte_id('\xF0')), "");
  EXPECT_EQ(decoder.push(byte_id('\x9F')), "");
  EXPECT_EQ(decoder.push(byte_id('\x91')), "");
  EXPECT_EQ(decoder.push(byte_id('\x8D')), "\xF0\x9F\x91\x8D");
  EXPECT_EQ(decoder.push(byte_id('\xFF')), "\uFFFD");
  EXPECT_EQ(decoder.push(byte_id('\xC3')), "");
  EXPECT_EQ(decoder.push(byte_id('A')), "\uFFFDA");
  EXPECT_EQ(decoder.push(byte_id('\xE6')), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoderTest, AddsUpToTheText) {
  const Tokenizer tokenizer = tokenizer_of(mini_json());
  const std::string text = "naïve 日本 👍🏽 ok";
  std::string streamed;
  StreamDecoder decoder(tokenizer);
  for (int32_t id : tokenizer.encode(text)) streamed += decoder.push(id);
  EXPECT_EQ(streamed + decoder.finish(), text);
}

// Each row: what is changed in the file, and what the error must name.
struct Refused {
  const char* pointer;
  Json value;
  std::vector<std::string> says;
};

TEST(TokenizerJsonTest, RefusesWhatItCannotHonour) {
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const auto sequence = [&](Json first) {
    return Json{{"type", "Sequence"}, {"pretokenizers", Json::array({std::move(first), byte_level})}};
  };
  const auto with = [](Json object, const char* key, Json value) {
    object[key] = std::move(value);
    return object;
  };
  const auto pattern = [&](const char* regex) {
    return sequence(with(split, "pattern", {{"Regex", regex}}));
  };
  const std::vector<Refused> table = {
      {"/normalizer", {{"type", "NFC"}}, {"normalizer", "NFC"}},
      {"/truncation", {{"max_length", 5}}, {"truncation", "max_length"}},
      {"/padding", 1, {"padding"}},
      {"/decoder", nullptr, {"decoder", "ByteLevel"}},
      {"/post_processor", {{"type", "TemplateProcessing"}}, {"post_processor", "TemplateProcessing"}},
      {"/pre_tokenizer", nullptr, {"pre_tokenizer", "null", "ByteLevel"}},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, {"pre_tokenizer", "Metaspace"}},
      {"/pre_tokenizer", with(byte_level, "add_prefix_space", true), {"add_prefix_space", "false"}},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", Json::array({byte_level, split})}},
       {"pretokenizers[0]"}},
      {"/pre_tokenizer", sequence(with(split, "behavior", "Removed")), {"behavior", "Removed", "Isolated"}},
      {"/pre_tokenizer", sequence(with(split, "invert", true)), {"invert"}},
      {"/pre_tokenizer", sequence(with(split, "pattern", {{"String", " "}})), {"pattern", "String"}},
      {"/pre_tokenizer", pattern("a\\b"), {"`\\b`"}},
      {"/pre_tokenizer", pattern("[a[b]]"), {"[ inside a class"}},
      {"/pre_tokenizer", pattern("[a&&b]"), {"&&"}},
      {"/pre_tokenizer", pattern("^a"), {"`^`"}},
      {"/pre_tokenizer", pattern("\\p{Han}+"), {"\\p{Han}"}},
      {"/pre_tokenizer", pattern("a{1,3}+"), {"{1,3}+"}},
      {"/pre_tokenizer", pattern("(?P<n>a)"), {"(?P<"}},
      {"/pre_tokenizer", pattern("(a"), {"(a", "parenthesis"}},
      {"/pre_tokenizer", pattern("[a"), {"unclosed"}},
      {"/pre_tokenizer", pattern("a\\"), {"a\\"}},
      {"/model/type", "Unigram", {"model", "BPE"}},
      {"/model/dropout", 0.1, {"model.dropout", "0.1"}},
      {"/model/byte_fallback", true, {"byte_fallback"}},
      {"/model/end_of_word_suffix", "</w>", {"end_of_word_suffix", "</w>"}},
      {"/model/ignore_merges", "yes", {"ignore_merges", "true or false"}},
      {"/model/vocab", Json::array(), {"model.vocab"}},
      {"/model/vocab/new", 2000000000, {"2000000000", "out of range"}},
      {"/model/vocab/new", -1, {"new", "-1"}},
      {"/model/vocab/new", 1.5, {"1.5"}},
      {"/model/vocab/new", 5000000000, {"5000000000"}},
      {"/model/vocab/new", 17, {"two tokens have id 17"}},
      {"/model/merges/3", "a b c", {"model.merges[3]"}},
      {"/model/merges/3", Json::array({"a"}), {"model.merges[3]"}},
      {"/model/merges/3", Json::array({"a", "日"}), {"merge 3", "日"}},
      {"/added_tokens/0/lstrip", true, {"added_tokens[0].lstrip"}},
      {"/added_tokens/0/id", 12, {"<|endoftext|>", "12"}},
      {"/added_tokens/0",
       {{"id", mini_json().at("/model/vocab/Ġt"_json_pointer)}, {"content", "Ġt"}},
       {"added token \"Ġt\"", "other bytes"}},
      {"/added_tokens/0/content", "", {"added_tokens[0].content"}},
      {"/added_tokens", 3, {"added_tokens", "array"}},
  };
  for (const Refused& row : table) {
    Json json = mini_json();
    json[Json::json_pointer(row.pointer)] = row.value;
    try {
      tokenizer_of(json);
      ADD_FAILURE() << row.pointer << " = " << row.value << " was accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("mini"));
      for (const std::string& text : row.says) EXPECT_THAT(error.what(), HasSubstr(text)) << row.pointer;
    }
  }
}

TEST(TokenizerJsonTest, AnUnknownTokenNeedsNoMeaningIfEveryByteIsKnown) {
  Json json = mini_json();
  json["model"]["unk_token"] = "<|endoftext|>";
  EXPECT_EQ(tokenizer_of(json).decode(tokenizer_of(json).encode("\xFF")), "\xFF");
  // Without some byte the library would put unk_token in its place.
  json["model"]["vocab"].erase("ÿ");
  EXPECT_THAT([&] { tokenizer_of(json); }, ThrowsMessage<Error>(HasSubstr("model.unk_token")));
  json["model"]["unk_token"] = nullptr;
  EXPECT_THAT([&] { tokenizer_of(json).encode("\xFF"); }, ThrowsMessage<Error>(HasSubstr("byte 0xFF")));
}

TEST(TokenizerJsonTest, SurvivesDamage) {
  const std::string good = mini_json().dump();
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}"), std::string("\x00\xFF", 2),
        std::string(100000, '['), good.substr(0, good.size() / 2)}) {
    EXPECT_THROW(Tokenizer::parse(bad, "bad"), Error);
  }
  std::mt19937 random(5);
  int rejected = 0;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = good;
    for (int flips = 0; flips < 3; ++flips) damaged[random() % damaged.size()] = char(random());
    try {
      const Tokenizer tokenizer = Tokenizer::parse(damaged, "damaged");
      tokenizer.encode("The people's government");
    } catch (const Error&) {
      ++rejected;
    }
  }
  EXPECT_GT(rejected, 100);
}

}  // namespace
}  // namespace weft
