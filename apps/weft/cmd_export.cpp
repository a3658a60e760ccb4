// `weft export`: a model's weights for other tools.
#include <memory>

#include "apps/weft/commands.h"
#include "apps/weft/libweft.h"

namespace weft {

void add_export_command(CLI::App& app, int* status) {
  CLI::App* command =
      app.add_subcommand("export", "Write a model's weights as one file, under HuggingFace's names");
  const auto options = std::make_shared<ExportOptions>();
  command->add_option("MODEL", options->model, "Run directory, checkpoint or HuggingFace folder")->required();
  command->add_option("OUTPUT", options->output, "The safetensors file to write")->required();
  command->add_flag("--ema", options->ema, "The moving average of the run's weights (optim.ema_decay)");
  command
      ->add_option("--dtype", options->dtype,
                   "fp32, fp64, bf16 or fp16, rounded to nearest (default: as the run keeps them)")
      ->check(CLI::IsMember({"fp32", "fp64", "bf16", "fp16"}).description(""));
  command->footer(
      "However many ranks saved the checkpoint, the file holds every weight whole. Of a run directory it is\n"
      "the newest checkpoint. Names are those of the model that model.from_hf named, else Llama's.\n"
      "Example:\n"
      "  weft export runs/demo model.safetensors --dtype bf16");
  command->callback([=] { *status = libweft_function<decltype(weft_export)>("weft_export")(*options); });
}

}  // namespace weft
