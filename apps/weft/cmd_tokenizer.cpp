// `weft tokenizer`: train a byte-level BPE tokenizer, and try one out.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/progress.h"
#include "weft/data/bpe_train.h"
#include "weft/data/text_files.h"
#include "weft/data/tokenizer.h"

#include "apps/weft/commands.h"

namespace weft {
namespace {

struct TrainOptions {
  std::vector<std::string> input;
  int64_t vocab_size = 0;
  std::string output;
};

void train(const TrainOptions& options) {
  BpeTrainer trainer(options.vocab_size);
  const std::vector<TextFile> files = find_text_files(options.input);
  check_writable(options.output);
  const int64_t bytes = total_bytes(files);
  Progress progress("counting words", bytes, "bytes");
  for (const TextFile& file : files) {
    const auto mapped = Env::system().map(file.path);
    trainer.add_text({reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size()});
    progress.add(file.bytes);
  }
  progress.finish();
  const TrainedTokenizer trained = trainer.train();
  write_file_atomically(Env::system(), options.output, trained.json);
  if (trained.vocab_size < options.vocab_size) {
    fmt::print(stderr, "warning: the text has too few repeated pairs for {} tokens: the vocabulary has {}\n",
               options.vocab_size, trained.vocab_size);
  }
  fmt::print("trained on {:.1f} MB of text ({} distinct words)\nwrote {}: {} tokens\n", double(bytes) / 1e6,
             trainer.distinct_words(), options.output, trained.vocab_size);
}

std::string read_stdin() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

void encode(const std::string& path, bool special) {
  const Tokenizer tokenizer = Tokenizer::load(path);
  const auto ids = tokenizer.encode(read_stdin(), special ? SpecialTokens::kMatched : SpecialTokens::kAsText);
  fmt::print("{}\n", fmt::join(ids, " "));
}

void decode(const std::string& path) {
  const Tokenizer tokenizer = Tokenizer::load(path);
  std::vector<int32_t> ids;
  for (int32_t id; std::cin >> id;) ids.push_back(id);
  if (!std::cin.eof())
    fail("standard input: expected ids separated by white space, number {} is none", ids.size() + 1);
  const std::string bytes = tokenizer.decode(ids);
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
}

void add_train(CLI::App* parent, int* status) {
  CLI::App* command = parent->add_subcommand("train", "Train a byte-level BPE tokenizer on text");
  const auto options = std::make_shared<TrainOptions>();
  command->add_option("--input", options->input, "Text files, or directories that are searched for *.txt")
      ->required();
  command->add_option("--vocab-size", options->vocab_size, "Tokens: 256 bytes, merges, <|endoftext|>")
      ->required();
  command->add_option("--output", options->output, "The tokenizer.json to write")->required();
  command->footer(
      "Example:\n  weft tokenizer train --input speeches/ --vocab-size 4096 --output tokenizer.json\n"
      "HuggingFace's tokenizers library opens the file too, and gives the same ids.");
  command->callback([=] {
    train(*options);
    *status = 0;
  });
}

}  // namespace

void add_tokenizer_command(CLI::App& app, int* status) {
  CLI::App* group = app.add_subcommand("tokenizer", "Train a tokenizer, encode and decode with one");
  group->require_subcommand(1);
  add_train(group, status);

  const auto path = std::make_shared<std::string>();
  const auto special = std::make_shared<bool>(false);
  CLI::App* encoder = group->add_subcommand("encode", "Token ids of the text on standard input");
  encoder->add_option("--tokenizer", *path, "A tokenizer.json")->required();
  encoder->add_flag("--special", *special, "Match special tokens in the text, such as <|endoftext|>");
  encoder->footer("Example:\n  echo -n 'Hello world' | weft tokenizer encode --tokenizer tokenizer.json");
  encoder->callback([=] {
    encode(*path, *special);
    *status = 0;
  });
  CLI::App* decoder = group->add_subcommand("decode", "Text of the token ids on standard input");
  decoder->add_option("--tokenizer", *path, "A tokenizer.json")->required();
  decoder->footer("Example:\n  echo 15496 995 | weft tokenizer decode --tokenizer tokenizer.json");
  decoder->callback([=] {
    decode(*path);
    *status = 0;
  });
}

}  // namespace weft
