#include "weft/train/generate_text.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "weft/base/error.h"

namespace weft {

std::vector<int64_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt,
                                   bool opens_documents) {
  std::vector<int64_t> tokens;
  if (const auto eos = tokenizer.eos_id(); eos && (opens_documents || prompt.empty())) tokens.push_back(*eos);
  for (const int32_t id : tokenizer.encode(prompt)) tokens.push_back(id);
  if (tokens.empty()) fail("the prompt is empty: this model needs at least one token to go on from");
  return tokens;
}

void generate_text(Decoder& decoder, const Tokenizer& tokenizer, std::vector<int64_t> tokens,
                   int64_t max_tokens, const SamplingOptions& options,
                   const std::function<void(const std::string&)>& emit) {
  const int64_t vocab = decoder.model().vocab_size;
  for (const int64_t id : tokens)
    if (id >= vocab)
      fail("the tokenizer makes token {}, outside the model's vocabulary of {}: it is another model's", id,
           vocab);
  // The last token that is sampled needs no position: nothing comes after it.
  const int64_t length = int64_t(tokens.size());
  if (decoder.model().position == "learned" && length <= decoder.model().max_positions)
    max_tokens = std::min(max_tokens, decoder.model().max_positions - length + 1);
  Caches caches = decoder.make_caches(length + max_tokens - 1);
  StreamDecoder stream(tokenizer);
  for (int64_t i = 0; i < max_tokens; ++i) {
    // A model's vocabulary may be padded beyond the tokenizer's: those rows stand for nothing.
    const at::Tensor logits = decoder.next_logits(at::tensor(tokens, at::kLong), caches)
                                  .narrow(0, 0, std::min(vocab, tokenizer.vocab_size()));
    const int64_t next = decoder.data_parallel().first_ranks(sample_token(logits, options, i));
    if (next == tokenizer.eos_id()) break;
    emit(stream.push(int32_t(next)));
    tokens = {next};
  }
  emit(stream.finish());
}

}  // namespace weft
