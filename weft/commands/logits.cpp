// weft logits: logits, loss and gradients of a HuggingFace folder, to compare with another tool's.
#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/safetensors.h"
#include "weft/checkpoint/hf_weights.h"
#include "weft/checkpoint/tensor_io.h"
#include "weft/commands/command.h"
#include "weft/commands/load_model.h"
#include "weft/entry.h"
#include "weft/parallel/partial_gradients.h"
#include "weft/train/process.h"

namespace weft {
namespace {

at::Tensor read_input_ids(Env& env, const std::string& path, int64_t vocab) {
  const SafetensorsFile file(env, path);
  const std::string& dtype = file.info("input_ids").dtype;
  if (dtype != "I64" && dtype != "I32") fail("{}: input_ids must be I64 or I32, not {}", path, dtype);
  const at::Tensor ids = read_tensor(file, "input_ids").to(at::kLong, /*non_blocking=*/false, /*copy=*/true);
  if (ids.dim() != 2 || ids.numel() == 0)
    fail("{}: input_ids must be [batch, seq] with at least one token, not {}", path,
         fmt::join(ids.sizes(), " x "));
  const int64_t low = ids.min().item<int64_t>(), high = ids.max().item<int64_t>();
  if (low < 0 || high >= vocab)
    fail("{}: input_ids has {}, outside the vocabulary of {}", path, low < 0 ? low : high, vocab);
  return ids;
}

/// The gradient of all of a param, of which tp ranks have pieces.
at::Tensor whole_grad(const Param& param, MeshGroups& groups) {
  const at::Tensor own = param.grad().view({-1});
  const at::Tensor all = at::zeros(param.shape(), own.options());
  const Box whole = whole_box(param.shape());
  if (param.is_first_copy())
    for (const auto& [first, box] : param.boxes(0, param.numel()))
      narrowed(all, whole, box).copy_(own.narrow(0, first, box.numel()).view(box.shape()));
  groups.get({Axis::tp}).all_reduce(all).wait();
  return all;
}

int write_logits(const LogitsOptions& options) {
  set_up_process(options.threads);
  Env& env = Env::system();
  World& world = World::join(options.comm, "");
  MeshGroups groups(Mesh(options.parallel, world.size()), world);
  if (groups.mesh().size(kDataAxes) > 1)
    fail("{} data-parallel ranks would all compute the same: set parallel.tp to the number of ranks",
         groups.mesh().size(kDataAxes));
  const auto decoder = load_hf_model(env, options.hf_dir, options.dtype == "fp64" ? at::kDouble : at::kFloat,
                                     options.parallel, groups);
  const at::Tensor ids = read_input_ids(env, options.input, decoder->model().vocab_size);
  const MicroBatch batch = micro_batch_of_rows(ids);
  const int64_t targets = ids.size(0) * (ids.size(1) - 1);
  const double normaliser = targets > 0 ? 1.0 / double(targets) : 0;

  std::vector<std::pair<std::string, at::Tensor>> results;
  results.emplace_back("logits", decoder->logits(batch).view({ids.size(0), ids.size(1), -1}));
  const double loss = options.grad ? decoder->forward_backward(batch, normaliser, {}, 0, 0)
                                   : decoder->loss(batch, normaliser, 0);
  results.emplace_back("loss", at::full({1}, loss, results[0].second.options()));
  if (options.grad) {
    decoder->data_parallel().finish_reductions();
    sum_partial_gradients(decoder->units(), groups);
    const HfNames names(read_hf_model(env, options.hf_dir));
    for (auto& [name, grad] :
         hf_tensors(names, decoder->params(), [&](const Param& p) { return whole_grad(p, groups); }))
      results.emplace_back("grad." + name, grad);
  }

  world.leave();
  if (world.rank() > 0) return 0;
  std::vector<TensorToWrite> tensors;
  for (auto& [name, tensor] : results) tensors.push_back(tensor_to_write(name, tensor));
  write_atomically(env, options.output,
                   [&](const std::string& temporary) { write_safetensors(env, temporary, tensors); });
  fmt::print("{}: {} x {} tokens, loss {:.10g}, {} tensors\n", options.output, ids.size(0), ids.size(1), loss,
             tensors.size());
  return 0;
}

}  // namespace
}  // namespace weft

int weft_logits(const weft::LogitsOptions& options) {
  return weft::guarded([&] { return weft::write_logits(options); });
}
