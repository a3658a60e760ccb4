// A model's continuation of a text: for `weft generate`, and for the samples that a run shows of itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/data/tokenizer.h"
#include "weft/nn/decoder.h"
#include "weft/nn/sampling.h"

namespace weft {

/// The tokens that a prompt begins with. `opens_documents`: the model was trained with documents kept apart,
/// so that the end-of-text token, which stands before each, tells it that one begins. An empty prompt begins
/// with that token in any case. Throws Error if there is nothing to begin with.
std::vector<int64_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt,
                                   bool opens_documents);

/// Samples up to `max_tokens` after `tokens`, with a KV cache, and stops at the end-of-text token; `emit`
/// gets the text piece by piece, well-formed UTF-8. Ends too where a model's learned positions do. The text
/// is f(weights, tokens, options). All ranks of the model call it together. Throws Error for a token outside
/// the model's vocabulary, and for more tokens than positions.
void generate_text(Decoder& decoder, const Tokenizer& tokenizer, std::vector<int64_t> tokens,
                   int64_t max_tokens, const SamplingOptions& options,
                   const std::function<void(const std::string&)>& emit);

}  // namespace weft
