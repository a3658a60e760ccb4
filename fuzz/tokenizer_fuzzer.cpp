#include "weft/data/tokenizer.h"
#include "weft/data/utf8.h"

#include "fuzz/targets.h"
#include "tests/base/memory_env.h"

namespace weft::fuzz {
namespace {

/// Texts to encode: words, numbers, white space, several scripts, a special token, bytes that are not UTF-8,
/// and what the vocabulary itself spells.
std::vector<std::string> texts(const Tokenizer& tokenizer) {
  std::string all_bytes, all_tokens;
  for (int byte = 0; byte < 256; ++byte) all_bytes += char(byte);
  for (int32_t id = 0; id < tokenizer.vocab_size() && all_tokens.size() < 1000; ++id) {
    try {
      all_tokens += tokenizer.bytes_of(id);
    } catch (const Error&) {  // a hole in the vocabulary
    }
  }
  return {"The cat's  2 hats\n\n cost $1234.50!",
          "日本語 Ωμέγα e\u0301 🙂",
          "a<|endoftext|>b",
          "\xff\xc3(\xe2\x82",
          all_bytes,
          all_tokens};
}

void check(const Tokenizer& tokenizer, const std::string& text, SpecialTokens special) {
  std::vector<int32_t> ids;
  std::string pieces, streamed;
  tokenizer.encode(text, special, [&](std::span<const int32_t> piece_ids, std::string_view piece) {
    ids.insert(ids.end(), piece_ids.begin(), piece_ids.end());
    pieces += piece;
  });
  WEFT_ASSERT(pieces == text, "the pieces of \"{}\" join to \"{}\"", text, pieces);
  const std::string decoded = tokenizer.decode(ids);
  WEFT_ASSERT(decoded == text, "\"{}\" decodes to \"{}\"", text, decoded);

  StreamDecoder stream(tokenizer);
  for (const int32_t id : ids) streamed += stream.push(id);
  streamed += stream.finish();
  WEFT_ASSERT(utf8_prefix(streamed) == streamed.size(), "\"{}\" is streamed as something that is not UTF-8",
              text);
}

}  // namespace

void tokenizer(std::string_view input) {
  MemoryEnv env({{"tokenizer.json", std::string(input)}});
  const Tokenizer tokenizer = Tokenizer::load("tokenizer.json", env);
  for (const std::string& text : texts(tokenizer)) {
    for (const SpecialTokens special : {SpecialTokens::kAsText, SpecialTokens::kMatched}) {
      try {
        check(tokenizer, text, special);
      } catch (const Error&) {  // the vocabulary lacks a byte, or a pattern gave up
      }
    }
  }
}

}  // namespace weft::fuzz
