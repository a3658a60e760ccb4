// `weft logits`: what a HuggingFace model computes, written to a file, to be compared with another tool.
#include <memory>

#include "apps/weft/commands.h"
#include "apps/weft/libweft.h"

namespace weft {

void add_logits_command(CLI::App& app, int* status) {
  CLI::App* command =
      app.add_subcommand("logits", "Write a HuggingFace model's logits, loss and gradients to a file");
  const auto options = std::make_shared<LogitsOptions>();
  command->add_option("HF_DIR", options->hf_dir, "Folder with config.json and safetensors")->required();
  command->add_option("--input", options->input, "safetensors with input_ids [batch, seq]")->required();
  command->add_option("--output", options->output, "safetensors to write: logits, loss, grad.NAME")
      ->required();
  command->add_flag("--grad", options->grad, "Write the gradient of the loss by every parameter too");
  command->add_option("--dtype", options->dtype, "fp32 or fp64: what is computed in and written")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "fp64"}).description(""));
  command->add_option("--threads", options->threads, "CPU threads; 0: all cores")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{4096}).description(""));
  command->footer(
      "The loss is the mean cross-entropy of each next token of input_ids.\n"
      "Examples:\n"
      "  weft logits SmolLM2-135M --input ids.safetensors --output out.safetensors --grad --dtype fp64\n"
      "  weft logits SmolLM2-135M --input ids.safetensors --output out.safetensors --ranks 3 --set "
      "parallel.tp=3");
  const auto job = add_job_options(*command);
  command->callback([=] {
    *status = run(*job, [&](const Config& config) {
      options->parallel = config.parallel, options->comm = config.comm;
      return libweft_function<decltype(weft_logits)>("weft_logits")(*options);
    });
  });
}

}  // namespace weft
