// Training of byte-level BPE tokenizers (Sennrich et al., "Neural machine translation of rare words with
// subword units", ACL 2016; bytes as in GPT-2): the most frequent adjacent pair of tokens inside the words
// becomes a token, again and again. Deterministic: equal counts go to the pair with the lowest ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "weft/data/pretokenizer.h"

namespace weft {

struct TrainedTokenizer {
  std::string json;        // a tokenizer.json that HuggingFace's library reads to the same ids
  int64_t vocab_size = 0;  // less than asked for if the text held too few repeated pairs
};

class BpeTrainer {
 public:
  /// Throws Error if vocab_size < 257: the bytes and the end of text.
  explicit BpeTrainer(int64_t vocab_size);
  /// Counts the words of a text, which the GPT-2 regex finds. Memory grows with the distinct words only.
  void add_text(std::string_view text);
  int64_t distinct_words() const { return int64_t(word_counts_.size()); }

  /// Ids 0-255 are the bytes (in byte_level_order), then come the merges, and last "<|endoftext|>".
  /// A pair seen once is never merged. Throws Error if there are no words.
  TrainedTokenizer train() const;

 private:
  int64_t vocab_size_;
  PreTokenizer pretokenizer_;
  std::unordered_map<std::string, int64_t> word_counts_;
};

}  // namespace weft
