// `weft data`: turn text into the token files that training reads.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/progress.h"
#include "weft/data/indexed_dataset.h"
#include "weft/data/text_files.h"
#include "weft/data/tokenizer.h"

#include "apps/weft/commands.h"

namespace weft {
namespace {

struct BuildOptions {
  std::vector<std::string> input;
  std::string tokenizer;
  std::string output;
  bool no_eod = false;
};

/// The token that ends each document; none under --no-eod.
std::optional<int32_t> end_of_document(const Tokenizer& tokenizer, const BuildOptions& options) {
  if (options.no_eod) return std::nullopt;
  if (!tokenizer.eos_id()) {
    fail("{} has no token <|endoftext|> to end documents with: pass --no-eod to leave them unmarked",
         options.tokenizer);
  }
  return tokenizer.eos_id();
}

// As in Megatron-LM, an empty file is a document without any token.
void add_document(const Tokenizer& tokenizer, const TextFile& file, std::optional<int32_t> eod,
                  IndexedDatasetWriter* writer, Progress* progress) {
  const auto mapped = Env::system().map(file.path);
  const std::string_view text(reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size());
  tokenizer.encode(text, SpecialTokens::kAsText, [&](std::span<const int32_t> ids, std::string_view piece) {
    writer->append(ids);
    progress->add(int64_t(piece.size()));
  });
  if (eod && !text.empty()) writer->append(std::span(&*eod, 1));
  writer->end_document();
}

void build(const BuildOptions& options) {
  if (std::filesystem::path(options.output).filename().empty()) {
    fail("--output {}: expected a prefix of file names, such as data/train", options.output);
  }
  const std::vector<TextFile> files = find_text_files(options.input);
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  const std::optional<int32_t> eod = end_of_document(tokenizer, options);
  check_writable(options.output + ".idx");
  IndexedDatasetWriter writer(options.output, tokenizer.vocab_size());
  const int64_t bytes = total_bytes(files);
  Progress progress("tokenizing", bytes, "bytes");
  for (const TextFile& file : files) add_document(tokenizer, file, eod, &writer, &progress);
  progress.finish();
  writer.finish();
  fmt::print("documents {}, tokens {}, bytes per token {:.2f}\nwrote {} and {}\n", writer.documents(),
             writer.tokens(), double(bytes) / double(writer.tokens()), writer.bin_path(), writer.idx_path());
}

}  // namespace

void add_data_command(CLI::App& app, int* status) {
  CLI::App* group = app.add_subcommand("data", "Prepare training data");
  group->require_subcommand(1);
  CLI::App* command =
      group->add_subcommand("build", "Tokenise text into a .bin/.idx pair (Megatron-LM's format)");
  const auto options = std::make_shared<BuildOptions>();
  command->add_option("--input", options->input, "Text files, or directories that are searched for *.txt")
      ->required();
  command->add_option("--tokenizer", options->tokenizer, "A tokenizer.json")->required();
  command->add_option("--output", options->output, "Prefix of the files to write")->required();
  command->add_flag("--no-eod", options->no_eod, "Do not end each document with <|endoftext|>");
  command->footer(
      "One file is one document. Special tokens that are spelt out in the text stay text.\n"
      "Example:\n  weft data build --input speeches/ --tokenizer tokenizer.json --output data/speeches\n"
      "  then set data.train = [\"data/speeches\"] in the config of `weft train`");
  command->callback([=] {
    build(*options);
    *status = 0;
  });
}

}  // namespace weft
