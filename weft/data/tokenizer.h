// Byte-level BPE tokenizers in the form of HuggingFace's tokenizer.json. Text is cut into pieces by the
// pre-tokenizer's regexes; a piece starts as one token per byte, and the adjacent pair whose merge has the
// lowest rank is merged, leftmost first, until none is left. encode gives the ids that the HuggingFace
// library gives (without a post-processor's special tokens), and decode(encode(x)) == x for any bytes x.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "weft/base/env.h"
#include "weft/data/pretokenizer.h"

namespace weft {

/// What encode makes of special tokens that are spelt out in the text ("<|endoftext|>"). Training data and
/// anything a stranger wrote is kAsText: text cannot inject special tokens.
enum class SpecialTokens { kAsText, kMatched };

/// An entry of added_tokens: matched in the text as a whole, before any pre-tokenizer.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  bool normalized = false;  // HuggingFace looks for these after the others
};

/// A tokenizer.json's meaning, without the JSON.
struct TokenizerSpec {
  std::unordered_map<std::string, int32_t> vocab;           // keys in byte-level characters
  std::vector<std::pair<std::string, std::string>> merges;  // in order of rank
  std::vector<AddedToken> added;
  std::vector<std::string> patterns;  // of the pre-tokenizer
  bool ignore_merges = false;         // a piece that is in the vocabulary is that token
};

/// Parses the text of a tokenizer.json. Throws Error naming `where`, the key, its value and what is supported
/// for anything that this class could not honour exactly.
TokenizerSpec parse_tokenizer_json(std::string_view json, const std::string& where);

class Tokenizer {
 public:
  static Tokenizer load(const std::string& path, Env& env = Env::system());
  static Tokenizer parse(std::string_view json, const std::string& where);

  /// The largest id + 1: what a model's vocabulary must hold at least.
  int64_t vocab_size() const { return int64_t(bytes_.size()); }
  /// The id of a token spelt as in the file ("Ġthe", "<|endoftext|>").
  std::optional<int32_t> id_of(std::string_view token) const;
  /// The token that ends a document: "<|endoftext|>".
  std::optional<int32_t> eos_id() const { return id_of("<|endoftext|>"); }

  /// The ids of `text`, which may be any bytes. Throws Error if a byte of it has no token in the vocabulary.
  /// Encoding caches pieces: one thread at a time.
  std::vector<int32_t> encode(std::string_view text, SpecialTokens special = SpecialTokens::kAsText) const;

  /// The same in constant memory: `sink` gets the ids of each piece and the piece.
  using PieceSink = std::function<void(std::span<const int32_t> ids, std::string_view piece)>;
  void encode(std::string_view text, SpecialTokens special, const PieceSink& sink) const;

  /// The bytes that one token, or several, stand for. Throws Error for an id without token.
  const std::string& bytes_of(int32_t id) const;
  std::string decode(std::span<const int32_t> ids) const;

 private:
  struct Merge {
    int32_t rank, id;
  };
  Tokenizer(TokenizerSpec spec, const std::string& where);
  void add_vocab(const TokenizerSpec& spec, const std::string& where);
  void add_merges(const TokenizerSpec& spec, const std::string& where);
  void encode_between(size_t pass, std::string_view text, SpecialTokens special, const PieceSink& sink) const;
  void encode_piece(std::string_view piece, const PieceSink& sink) const;
  std::vector<int32_t> merge_piece(std::string_view piece) const;
  const AddedToken* added_token_at(size_t pass, std::string_view text, SpecialTokens special) const;
  const Merge* find_merge(int32_t left, int32_t right) const;

  std::string where_;
  PreTokenizer pretokenizer_;
  bool ignore_merges_ = false;
  std::unordered_map<std::string, int32_t> ids_;       // of tokens as spelt in the file
  std::vector<std::optional<std::string>> bytes_;      // of an id; none: a hole in the vocabulary
  std::unordered_map<std::string, int32_t> by_bytes_;  // BPE tokens only, for ignore_merges
  std::array<int32_t, 256> byte_ids_{};                // -1: none
  std::unordered_map<uint64_t, Merge> merges_;         // key: left << 32 | right
  // The two passes of matching; by first byte, longest first.
  std::array<std::array<std::vector<AddedToken>, 256>, 2> added_;
  mutable std::unordered_map<std::string, std::vector<int32_t>> cache_;
};

/// Turns a stream of ids into text that is well-formed UTF-8 at every moment: the bytes of an unfinished
/// character wait for the rest, bytes that can never become one are replaced by U+FFFD.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string push(int32_t id);
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;
};

}  // namespace weft
