// weft export
#include <map>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/safetensors.h"
#include "weft/checkpoint/format.h"
#include "weft/checkpoint/hf_weights.h"
#include "weft/checkpoint/tensor_io.h"
#include "weft/commands/command.h"
#include "weft/commands/load_model.h"
#include "weft/data/text_files.h"
#include "weft/entry.h"
#include "weft/train/process.h"

namespace weft {
namespace {

const std::map<std::string, at::ScalarType> kDtypes = {
    {"fp32", at::kFloat}, {"fp64", at::kDouble}, {"bf16", at::kBFloat16}, {"fp16", at::kHalf}};

HfNames names_of(Env& env, const LoadedModel& model) {
  if (model.hf_dir.empty()) return HfNames({"llama", model.decoder->model()});
  if (!env.exists(model.hf_dir + "/config.json"))
    fail(
        "{}/config.json is not there any more, and it says how the tensors are named: put the folder that "
        "the run started from (model.from_hf) back",
        model.hf_dir);
  return HfNames(read_hf_model(env, model.hf_dir));
}

int export_model(const ExportOptions& options) {
  set_up_process(0);
  Env& env = Env::system();
  check_writable(options.output);
  const LoadedModel model = load_model(env, options.model, options.ema ? kAverage : kWeight);
  std::vector<std::pair<std::string, at::Tensor>> tensors = hf_tensors(
      names_of(env, model), model.decoder->params(), [](const Param& param) { return param.weight(); });
  std::vector<TensorToWrite> to_write;
  uint64_t bytes = 0;
  for (auto& [name, tensor] : tensors) {
    if (!options.dtype.empty()) tensor = tensor.to(kDtypes.at(options.dtype));
    to_write.push_back(tensor_to_write(name, tensor));
    bytes += tensor.nbytes();
  }
  write_atomically(env, options.output,
                   [&](const std::string& temporary) { write_safetensors(env, temporary, to_write); });
  fmt::print("wrote {}: {} tensors, {:.1f} MB\n", options.output, to_write.size(), double(bytes) / 1e6);
  return 0;
}

}  // namespace
}  // namespace weft

int weft_export(const weft::ExportOptions& options) {
  return weft::guarded([&] { return weft::export_model(options); });
}
