#include "weft/data/bpe_train.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/data/byte_level.h"

namespace weft {
namespace {

constexpr int64_t kMinVocabSize = 257, kMaxVocabSize = 1 << 24;
constexpr int64_t kMinPairCount = 2;
constexpr const char* kEndOfText = "<|endoftext|>";

using Pair = std::pair<int32_t, int32_t>;

struct PairHash {
  size_t operator()(const Pair& pair) const {
    const uint64_t key = uint64_t(uint32_t(pair.first)) << 32 | uint32_t(pair.second);
    return size_t((key ^ key >> 29) * 0x9E3779B97F4A7C15);
  }
};

// The distinct words as one array of symbols, linked within each word, with the count of every adjacent pair
// and the positions where it occurs. One merge then costs only as much as the pair has occurrences.
class Merger {
 public:
  explicit Merger(const std::vector<std::pair<std::string_view, int64_t>>& words) {
    std::array<int32_t, 256> id_of_byte{};
    for (size_t id = 0; id < 256; ++id) {
      const uint8_t byte = byte_level_order()[id];
      id_of_byte[byte] = int32_t(id);
      add_token(std::string(1, char(byte)));
    }
    for (const auto& [word, count] : words) add_word(word, count, id_of_byte);
    for (const auto& [pair, info] : pairs_) heap_.push({info.count, pair});
  }

  /// Merges until there are `n_tokens` tokens or no pair occurs twice.
  void run(int64_t n_tokens) {
    while (int64_t(tokens_.size()) < n_tokens && !heap_.empty()) {
      const Candidate best = heap_.top();
      heap_.pop();
      const int64_t count = pairs_[best.pair].count;
      if (count < kMinPairCount) continue;
      if (count != best.count) {
        heap_.push({count, best.pair});  // it has changed since it was put there
      } else {
        merge(best.pair);
      }
    }
  }

  const std::vector<std::string>& tokens() const { return tokens_; }  // bytes
  const std::vector<Pair>& merges() const { return merges_; }

 private:
  using Position = uint32_t;
  static constexpr Position kEnd = std::numeric_limits<Position>::max();
  static constexpr int32_t kDead = -1;

  struct PairInfo {
    int64_t count = 0;
    std::vector<Position> positions;  // of the left symbol; some may be stale
  };
  struct Candidate {
    int64_t count;
    Pair pair;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  int32_t add_token(const std::string& bytes) {
    const auto [entry, inserted] = token_ids_.try_emplace(bytes, int32_t(tokens_.size()));
    if (inserted) tokens_.push_back(bytes);
    return entry->second;
  }

  void add_word(std::string_view word, int64_t count, const std::array<int32_t, 256>& id_of_byte) {
    const size_t begin = symbol_.size(), end = begin + word.size();
    if (end >= kEnd) fail("the distinct words of the text exceed 4 GiB: train the tokenizer on a part of it");
    for (size_t at = begin; at < end; ++at) {
      symbol_.push_back(id_of_byte[uint8_t(word[at - begin])]);
      previous_.push_back(at == begin ? kEnd : Position(at - 1));
      next_.push_back(at + 1 == end ? kEnd : Position(at + 1));
      weight_.push_back(count);
    }
    for (size_t at = begin; at + 1 < end; ++at) count_pair(Position(at));
  }

  Pair pair_at(Position at) const { return {symbol_[at], symbol_[next_[at]]}; }

  void count_pair(Position at) {
    PairInfo& info = pairs_[pair_at(at)];
    info.count += weight_[at];
    info.positions.push_back(at);
  }

  void merge(Pair pair) {
    merges_.push_back(pair);
    // Two ways of merging can spell the same token: then it exists already.
    const int32_t id = add_token(tokens_[pair.first] + tokens_[pair.second]);
    std::vector<Position> positions = std::exchange(pairs_[pair].positions, {});
    std::ranges::sort(positions);  // left to right, so that "aaa" becomes "aa", "a"
    positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
    std::vector<Pair> grown;
    for (Position left : positions) {
      if (symbol_[left] != pair.first || next_[left] == kEnd || symbol_[next_[left]] != pair.second) continue;
      merge_at(left, id, &grown);
    }
    pairs_.erase(pair);
    std::ranges::sort(grown);
    grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
    for (const Pair& other : grown) {
      const auto found = pairs_.find(other);
      if (found != pairs_.end()) heap_.push({found->second.count, other});
    }
  }

  void merge_at(Position left, int32_t id, std::vector<Pair>* grown) {
    const Position right = next_[left], before = previous_[left], after = next_[right];
    const int64_t weight = weight_[left];
    pairs_[pair_at(left)].count -= weight;
    if (before != kEnd) pairs_[pair_at(before)].count -= weight;
    if (after != kEnd) pairs_[pair_at(right)].count -= weight;
    symbol_[left] = id, symbol_[right] = kDead;
    next_[left] = after;
    if (after != kEnd) previous_[after] = left;
    for (Position at : {before, after == kEnd ? kEnd : left}) {
      if (at == kEnd) continue;
      count_pair(at);
      grown->push_back(pair_at(at));
    }
  }

  std::vector<int32_t> symbol_;
  std::vector<Position> previous_, next_;
  std::vector<int64_t> weight_;  // how often the word occurs
  std::unordered_map<Pair, PairInfo, PairHash> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> token_ids_;
  std::vector<Pair> merges_;
};

std::string to_json(const Merger& merger, int32_t end_of_text) {
  using Json = nlohmann::ordered_json;
  Json vocab = Json::object(), merges = Json::array();
  std::vector<std::string> spelt;
  for (const std::string& token : merger.tokens()) spelt.push_back(to_byte_level(token));
  // Straight into the underlying list: ordered_json's own insertion searches it, which is quadratic.
  auto& entries = vocab.get_ref<Json::object_t&>();
  for (const std::string& token : spelt) entries.push_back({token, int64_t(entries.size())});
  entries.push_back({kEndOfText, end_of_text});
  for (const auto& [left, right] : merger.merges())
    merges.push_back(Json::array({spelt[left], spelt[right]}));
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", Json::array({{{"id", end_of_text},
                                                    {"content", kEndOfText},
                                                    {"single_word", false},
                                                    {"lstrip", false},
                                                    {"rstrip", false},
                                                    {"normalized", false},
                                                    {"special", true}}})},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", byte_level},
                     {"post_processor", nullptr},
                     {"decoder", byte_level},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", false},
                       {"vocab", std::move(vocab)},
                       {"merges", std::move(merges)}}}};
  return json.dump() + "\n";
}

}  // namespace

BpeTrainer::BpeTrainer(int64_t vocab_size) : vocab_size_(vocab_size), pretokenizer_({kGpt2Regex}, "GPT-2") {
  if (vocab_size < kMinVocabSize) {
    fail("vocab-size {} is too small: 256 bytes and {} take {}", vocab_size, kEndOfText, kMinVocabSize);
  }
  if (vocab_size > kMaxVocabSize) fail("vocab-size {} is too large: {} at most", vocab_size, kMaxVocabSize);
}

void BpeTrainer::add_text(std::string_view text) {
  std::string word;
  pretokenizer_.split(text, [&](std::string_view piece) {
    word.assign(piece);
    ++word_counts_[word];
  });
}

TrainedTokenizer BpeTrainer::train() const {
  if (word_counts_.empty()) fail("there is no text to train a tokenizer on: all inputs are empty");
  std::vector<std::pair<std::string_view, int64_t>> words(word_counts_.begin(), word_counts_.end());
  std::ranges::sort(words);
  Merger merger(words);
  merger.run(vocab_size_ - 1);
  const auto end_of_text = int32_t(merger.tokens().size());
  return {to_json(merger, end_of_text), int64_t(end_of_text) + 1};
}

}  // namespace weft
