// weft generate
#include <algorithm>
#include <cstdio>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/commands/command.h"
#include "weft/commands/load_model.h"
#include "weft/entry.h"
#include "weft/nn/sampling.h"
#include "weft/train/process.h"

namespace weft {
namespace {

std::vector<int64_t> prompt_tokens(const GenerateOptions& options, const Tokenizer& tokenizer,
                                   bool opens_documents) {
  std::vector<int64_t> tokens;
  if (const auto eos = tokenizer.eos_id(); opens_documents && eos) tokens.push_back(*eos);
  for (const int32_t id : tokenizer.encode(options.prompt)) tokens.push_back(id);
  if (tokens.empty())
    fail("the prompt is empty: this model needs at least one token to go on from (--prompt)");
  return tokens;
}

int generate(const GenerateOptions& options) {
  set_up_process(options.threads);
  Env& env = Env::system();
  LoadedModel model = load_model(env, options.model);
  const std::string path = options.tokenizer.empty() ? model.tokenizer_path : options.tokenizer;
  if (path.empty()) fail("{} has no tokenizer.json: name one with --tokenizer", options.model);
  const Tokenizer tokenizer = Tokenizer::load(path, env);
  std::vector<int64_t> tokens = prompt_tokens(options, tokenizer, model.opens_documents);
  const int64_t vocab = model.decoder->model().vocab_size;
  for (const int64_t id : tokens)
    if (id >= vocab) fail("{} makes token {}, outside the model's vocabulary of {}", path, id, vocab);

  fmt::print("{}", options.prompt);
  const SamplingOptions sampling{options.temperature, options.top_k, options.top_p, options.seed};
  std::vector<KvCache> caches = model.decoder->make_caches(int64_t(tokens.size()) + options.max_tokens);
  StreamDecoder stream(tokenizer);
  for (int64_t i = 0; i < options.max_tokens; ++i) {
    // A model's vocabulary may be padded beyond the tokenizer's: those rows stand for nothing.
    const at::Tensor logits = model.decoder->next_logits(at::tensor(tokens, at::kLong), caches)
                                  .narrow(0, 0, std::min(vocab, tokenizer.vocab_size()));
    const int64_t next = sample_token(logits, sampling, i);
    if (next == tokenizer.eos_id()) break;
    fmt::print("{}", stream.push(int32_t(next)));
    std::fflush(stdout);
    tokens = {next};
  }
  fmt::print("{}\n", stream.finish());
  return 0;
}

}  // namespace
}  // namespace weft

int weft_generate(const weft::GenerateOptions& options) {
  return weft::guarded([&] { return weft::generate(options); });
}
