#include "weft/commands/load_model.h"

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/hf_config.h"
#include "weft/checkpoint/hf_weights.h"
#include "weft/comm/together.h"

namespace weft {
namespace {

LoadedModel load_run(Env& env, const std::string& run_dir, const Checkpoint& checkpoint, const char* kind,
                     const ParallelConfig& parallel, MeshGroups& groups) {
  if (!checkpoint.tensors.contains(kind))
    fail("{} holds no moving average of the weights: leave out --ema, or train with optim.ema_decay",
         checkpoint.dir);
  std::vector<std::string> warnings;
  Config config = load_config(run_dir + "/config.toml", {}, &warnings, env);
  resolve(&config);
  LoadedModel model;
  model.decoder =
      std::make_unique<Decoder>(config.model, dtypes_of(config.precision).params, parallel, groups);
  together(groups.all(), [&] { load_weights(env, checkpoint, model.decoder->params(), kind); });
  model.decoder->data_parallel().publish();
  model.hf_dir = config.model.from_hf;
  model.opens_documents = config.data.document_mask && config.data.format == "indexed";
  if (env.exists(run_dir + "/tokenizer.json")) model.tokenizer_path = run_dir + "/tokenizer.json";
  return model;
}

}  // namespace

std::unique_ptr<Decoder> load_hf_model(Env& env, const std::string& dir, at::ScalarType dtype,
                                       const ParallelConfig& parallel, MeshGroups& groups) {
  const HfModel model = read_hf_model(env, dir);
  auto decoder = std::make_unique<Decoder>(model.config, dtype, parallel, groups);
  together(groups.all(), [&] { load_hf_weights(env, dir, HfNames(model), decoder->params()); });
  decoder->data_parallel().publish();
  return decoder;
}

LoadedModel load_model(Env& env, const std::string& path, const char* kind, const ParallelConfig& parallel,
                       MeshGroups& groups) {
  Group& all = groups.all();
  if (env.exists(path + "/config.json")) {
    if (kind != std::string(kWeight))
      fail("{} is a HuggingFace folder, which holds no moving average of the weights: leave out --ema", path);
    LoadedModel model;
    model.decoder = load_hf_model(env, path, at::kFloat, parallel, groups);
    model.hf_dir = path;
    if (env.exists(path + "/tokenizer.json")) model.tokenizer_path = path + "/tokenizer.json";
    return model;
  }
  if (env.exists(path + "/index.json"))
    return load_run(env, path + "/../..", open_checkpoint(env, path, all), kind, parallel, groups);
  if (!env.exists(path + "/config.toml"))
    fail(
        "{} is no model: it has neither config.toml (a run directory), nor index.json (a checkpoint), nor "
        "config.json (a HuggingFace folder)",
        path);
  const auto checkpoint = find_checkpoint(
      env, path + "/checkpoints",
      [&](const std::string& warning) {
        if (all.rank() == 0) fmt::print(stderr, "weft: warning: {}\n", warning);
      },
      all);
  if (!checkpoint) fail("{} has no checkpoint yet: train first", path);
  return load_run(env, path, *checkpoint, kind, parallel, groups);
}

}  // namespace weft
