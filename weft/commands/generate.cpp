// weft generate
#include <cstdio>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/checkpoint/format.h"
#include "weft/commands/command.h"
#include "weft/commands/load_model.h"
#include "weft/entry.h"
#include "weft/train/generate_text.h"
#include "weft/train/process.h"

namespace weft {
namespace {

int generate(const GenerateOptions& options) {
  set_up_process(options.threads);
  Env& env = Env::system();
  World& world = World::join(options.comm, "");
  MeshGroups groups(Mesh(options.parallel, world.size()), world);
  const LoadedModel model =
      load_model(env, options.model, options.ema ? kAverage : kWeight, options.parallel, groups);
  const std::string path = options.tokenizer.empty() ? model.tokenizer_path : options.tokenizer;
  if (path.empty()) fail("{} has no tokenizer.json: name one with --tokenizer", options.model);
  const Tokenizer tokenizer = Tokenizer::load(path, env);
  const std::vector<int64_t> tokens = prompt_tokens(tokenizer, options.prompt, model.opens_documents);
  const SamplingOptions sampling{options.temperature, options.top_k, options.top_p, options.seed};
  const auto print = [&](const std::string& piece) {
    if (world.rank() > 0) return;
    fmt::print("{}", piece);
    std::fflush(stdout);
  };
  print(options.prompt);
  generate_text(*model.decoder, tokenizer, tokens, options.max_tokens, sampling, print);
  print("\n");
  world.leave();
  return 0;
}

}  // namespace
}  // namespace weft

int weft_generate(const weft::GenerateOptions& options) {
  return weft::guarded([&] { return weft::generate(options); });
}
