// `weft generate`: lets a model continue a text.
#include <memory>

#include "apps/weft/commands.h"
#include "apps/weft/libweft.h"

namespace weft {

void add_generate_command(CLI::App& app, int* status) {
  CLI::App* command = app.add_subcommand("generate", "Let a model continue a text");
  const auto options = std::make_shared<GenerateOptions>();
  command->add_option("MODEL", options->model, "Run directory, checkpoint or HuggingFace folder")->required();
  command->add_option("--prompt", options->prompt, "The text to continue")->required();
  command->add_option("--tokenizer", options->tokenizer, "A tokenizer.json (default: the model's own)");
  command->add_flag("--ema", options->ema, "With the moving average of the run's weights (optim.ema_decay)");
  command->add_option("--max-tokens", options->max_tokens, "Tokens to write at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30).description(""));
  command->add_option("--temperature", options->temperature, "0: always the likeliest token")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1000.0).description(""));
  command->add_option("--top-k", options->top_k, "Draw from the k likeliest tokens only; 0: from all")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30).description(""));
  command
      ->add_option("--top-p", options->top_p,
                   "Draw from the likeliest tokens that hold this probability together")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0).description(""));
  command->add_option("--seed", options->seed, "The same seed writes the same text")->capture_default_str();
  command->add_option("--threads", options->threads, "CPU threads; 0: all cores")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{4096}).description(""));
  command->footer(
      "Examples:\n"
      "  weft generate runs/demo --prompt \"My fellow citizens\" --temperature 0.8\n"
      "  weft generate SmolLM2-135M --prompt \"The moon\" --temperature 0 --max-tokens 50\n"
      "  weft generate runs/demo --prompt \"We\" --ranks 2 --set parallel.zero=3");
  const auto job = add_job_options(*command);
  command->callback([=] {
    *status = run(*job, [&](const Config& config) {
      options->parallel = config.parallel, options->comm = config.comm;
      return libweft_function<decltype(weft_generate)>("weft_generate")(*options);
    });
  });
}

}  // namespace weft
