#include "weft/nn/decoder.h"

#include <algorithm>

#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/progress.h"
#include "weft/base/trace.h"
#include "weft/ops/function.h"
#include "weft/ops/linear.h"

namespace weft {

Decoder::Decoder(const ModelConfig& model, at::ScalarType dtype)
    : Decoder(model, Dtypes(dtype), ParallelConfig{}, MeshGroups::alone()) {}

Decoder::Decoder(const ModelConfig& model, const Dtypes& dtypes, const ParallelConfig& parallel,
                 MeshGroups& groups)
    : model_(model),
      dtype_(dtypes.compute),
      tp_{&groups.get({Axis::tp}), parallel.sequence_parallel && groups.mesh().size(Axis::tp) > 1,
          parallel.async_tp} {
  check_tensor_parallel(model, tp_.size());
  const TensorPlace place{tp_.rank(), tp_.size(), tp_.sequence};
  const auto new_unit = [&](const std::string& name) -> ParamUnit& {
    return *units_.emplace_back(std::make_unique<ParamUnit>(name, dtypes, place));
  };
  const auto vocab_matrix = [&](const std::string& name) {
    ParamSpec spec;
    spec.name = name;
    spec.shape = {model.vocab_size, model.dim};
    spec.init.std = model.init_std;
    spec.placement = Placement::shard(0);
    return spec;
  };
  ParamUnit& first = new_unit("embedding");
  embedding_ = &first.add(vocab_matrix("model.embed_tokens.weight"));
  if (model.position == "learned") {
    ParamSpec spec;
    spec.name = "model.embed_positions.weight";
    spec.shape = {model.max_positions, model.dim};
    spec.init.std = model.init_std;
    if (tp_.sequence) spec.partial.insert(Axis::tp);
    positions_ = &first.add(spec);
  }
  if (model.embedding_norm) embedding_norm_ = Norm(model, first, "model.embed_norm");
  for (int64_t layer = 0; layer < model.n_layers; ++layer)
    layers_.push_back(std::make_unique<DecoderLayer>(model, layer, new_unit(fmt::format("layer.{}", layer))));
  ParamUnit& head = new_unit("head");
  final_norm_ = Norm(model, head, "model.norm");
  head_ = model.tie_embeddings ? embedding_ : &head.add(vocab_matrix("lm_head.weight"));
  check_memory(parallel, groups.mesh());
  data_parallel_ = std::make_unique<DataParallel>(parallel, groups, units_, tied_units());
}

void Decoder::check_memory(const ParallelConfig& parallel, const Mesh& mesh) const {
  const auto shards = double(mesh.size(Axis::tp) * (parallel.zero == 3 ? mesh.size(Axis::dp_shard) : 1));
  const double needed = 2.0 * double(numel()) * double(at::elementSize(dtype_)) / shards;
  const double machine = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  if (needed > machine)
    fail(
        "the model's {} parameters take {}B for weights and gradients alone, and this machine has {}B: make "
        "model.dim, n_layers or vocab_size smaller, or divide it among more ranks with parallel.zero = 3 or "
        "parallel.tp",
        short_count(double(numel())), short_count(needed), short_count(machine));
}

void Decoder::initialise(uint64_t seed) {
  for (const auto& unit : units_) unit->initialise(seed);
  data_parallel_->publish();
}

std::vector<ParamUnit*> Decoder::units_of(size_t block) const {
  std::vector<ParamUnit*> units{units_[block].get()};
  if (block == head_block() && head_ == embedding_) units.push_back(units_.front().get());
  return units;
}

std::vector<ParamUnit*> Decoder::tied_units() const {
  return head_ == embedding_ ? std::vector{units_.front().get()} : std::vector<ParamUnit*>{};
}

std::vector<Param*> Decoder::params() const {
  std::vector<Param*> all;
  for (const auto& unit : units_)
    for (const auto& param : unit->params()) all.push_back(param.get());
  return all;
}

int64_t Decoder::numel() const {
  int64_t n = 0;
  for (const Param* param : params()) n += param->global_numel();
  return n;
}

size_t Decoder::first_trainable_unit() const {
  size_t first = 0;
  while (first < units_.size() && std::ranges::none_of(units_[first]->params(), &Param::trainable)) ++first;
  return first;
}

PassContext Decoder::context(const MicroBatch& batch, const TensorParallel& tp) const {
  PassContext pass{.batch = batch, .tp = tp, .index = {}, .rope_full = {}, .rope_sliding = {}};
  if (batch.index.defined()) pass.index = tp.outside(batch.index);
  if (model_.position != "rope") return pass;
  const auto table = [&](const char* type) {
    return rope_table(model_, type, batch.positions, batch.cu_seqlens, dtype_);
  };
  pass.rope_full = table("full");
  pass.rope_sliding = model_.rope_theta_sliding != 0 ? table("sliding") : pass.rope_full;
  return pass;
}

void Decoder::check_length(int64_t length) const {
  if (positions_ && length > model_.max_positions)
    fail("{} tokens in a row, but the model has learned positions for {} only (model.max_positions)", length,
         model_.max_positions);
}

at::Tensor Decoder::embed(const PassContext& context) const {
  const Span span(SpanLevel::block, "embedding", {.pass = Pass::forward});
  const KindScope scope(SpanKind::embedding);
  const MicroBatch& batch = context.batch;
  at::Tensor x = embedding(batch.tokens, *embedding_, model_.embedding_multiplier, context.tp);
  if (positions_) {
    for (size_t d = 0; d + 1 < batch.cu_seqlens.size(); ++d)
      check_length(batch.cu_seqlens[d + 1] - batch.cu_seqlens[d]);
    x = x + embedding(context.tp.outside(batch.positions), *positions_);
  }
  if (embedding_norm_) x = embedding_norm_->forward(x);
  return dropout(x, dropout_at(context, model_.dropout, "embedding"), context.index);
}

at::Tensor Decoder::head_input(const at::Tensor& x) const {
  const at::Tensor normed = final_norm_->forward(x);
  // Scaling dim columns here rather than vocab_size columns of logits.
  return model_.logits_multiplier == 1 ? normed : normed * model_.logits_multiplier;
}

CrossEntropyOutput Decoder::head_loss(const at::Tensor& x, const PassContext& context, double normaliser,
                                      const CrossEntropyOptions& options) const {
  const Span span(SpanLevel::block, "head", {.pass = Pass::forward});
  const KindScope scope(SpanKind::head);
  return cross_entropy(head_input(x), *head_, context.batch.labels, normaliser, options, context.tp);
}

double Decoder::forward_backward(const MicroBatch& unpadded, double normaliser, CrossEntropyOptions loss,
                                 uint64_t seed, int64_t step, bool last_of_step) {
  loss.softcap = model_.final_softcap;
  const MicroBatch batch = padded(unpadded, tp_.sequence ? tp_.size() : 1);
  PassContext pass = context(batch, tp_);
  pass.training = true, pass.seed = seed, pass.step = step;

  const auto leaf = [](const at::Tensor& x) { return x.detach().requires_grad_(); };
  // Units before the first that is trained need no backward, so their blocks keep nothing.
  const size_t first = first_trainable_unit();
  const at::Tensor embedded = [&] {
    const Gathered gathered(*data_parallel_, units_of(0), units_of(1));
    const at::AutoGradMode records(first == 0);
    return embed(pass);
  }();
  at::Tensor x = embedded;
  // Of the layers that backward passes through. An undefined output is computed again.
  std::vector<at::Tensor> inputs, outputs;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const size_t block = layer + 1;
    const Gathered gathered(*data_parallel_, units_of(block), units_of(block + 1));
    const bool passes = block >= first;
    const at::AutoGradMode records(passes && !recompute_);
    if (passes) inputs.push_back(x = leaf(x));
    x = layers_[layer]->forward(x, pass);
    if (!passes) continue;
    // What as_tensor() gave lies in a buffer that may hold another unit's weights by the time of backward.
    const bool keeps = !recompute_ && (units_[block]->weights_stay() || !units_[block]->used_as_tensor());
    outputs.push_back(keeps ? x : at::Tensor());
  }

  const auto backward_block = [](const char* name, int64_t index, const at::Tensor& output,
                                 const at::Tensor& output_grad) {
    const Span span(SpanLevel::block, name, {.pass = Pass::backward, .index = index});
    backward(output, output_grad);
  };
  const auto units_above = [&](size_t block) {  // whose weights backward needs next
    return block > std::max<size_t>(first, 1) ? units_of(block - 1) : std::vector<ParamUnit*>{};
  };
  at::Tensor grad;
  const CrossEntropyOutput head = [&] {
    const std::vector<ParamUnit*> units = units_of(head_block());
    const Gathered gathered(*data_parallel_, units, units_above(head_block()));
    for (ParamUnit* unit : units) data_parallel_->begin_gradients(*unit);
    const at::Tensor input = leaf(x);
    const CrossEntropyOutput output = head_loss(input, pass, normaliser, loss);
    backward_block("head", -1, output.total, at::ones_like(output.total));
    grad = input.grad();
    for (ParamUnit* unit : units)  // a tied embedding gets gradients from its own block too
      data_parallel_->reduce(*unit, unit != units_.front().get(), last_of_step);
    return output;
  }();
  for (size_t block = layers_.size(); !outputs.empty(); --block) {
    ParamUnit& unit = *units_[block];
    const Gathered gathered(*data_parallel_, {&unit}, units_above(block));
    data_parallel_->begin_gradients(unit);
    if (!outputs.back().defined()) outputs.back() = layers_[block - 1]->forward(inputs.back(), pass);
    backward_block("layer", int64_t(block) - 1, outputs.back(), grad);
    grad = inputs.back().grad();
    outputs.pop_back();  // frees the block's graph
    inputs.pop_back();
    data_parallel_->reduce(unit, /*complete=*/true, last_of_step);
  }
  if (first == 0) {
    ParamUnit& unit = *units_.front();
    // Of the embedding's unit, only a norm's gradient needs weights.
    std::optional<Gathered> gathered;
    if (embedding_norm_) gathered.emplace(*data_parallel_, std::vector{&unit});
    data_parallel_->begin_gradients(unit);
    backward_block("embedding", -1, embedded, grad);
    data_parallel_->reduce(unit, /*complete=*/true, last_of_step);
  }
  return head.loss.item<double>();
}

at::Tensor Decoder::run(const PassContext& pass) const {
  at::Tensor x;
  for (size_t block = 0; block < head_block(); ++block) {
    const Gathered gathered(*data_parallel_, units_of(block), units_of(block + 1));
    x = block == 0 ? embed(pass) : layers_[block - 1]->forward(x, pass);
  }
  return x;
}

double Decoder::loss(const MicroBatch& unpadded, double normaliser, int64_t chunk) {
  at::NoGradGuard no_grad;
  const CrossEntropyOptions options{.softcap = model_.final_softcap, .chunk = chunk};
  const MicroBatch batch = padded(unpadded, tp_.sequence ? tp_.size() : 1);
  const PassContext pass = context(batch, tp_);
  const at::Tensor x = run(pass);
  const Gathered gathered(*data_parallel_, units_of(head_block()));
  return head_loss(x, pass, normaliser, options).loss.item<double>();
}

at::Tensor Decoder::head_logits(const at::Tensor& x, const TensorParallel& tp) const {
  const Gathered gathered(*data_parallel_, units_of(head_block()));
  return weft::logits(head_input(x), *head_, model_.final_softcap, tp);
}

at::Tensor Decoder::logits(const MicroBatch& batch) {
  at::NoGradGuard no_grad;
  return head_logits(run(context(batch, whole_tokens())), whole_tokens());
}

std::vector<KvCache> Decoder::make_caches(int64_t capacity) const {
  check_length(capacity);
  const int64_t heads = std::max<int64_t>(1, model_.n_kv_heads / tp_.size());
  std::vector<KvCache> caches;
  for (int64_t layer = 0; layer < model_.n_layers; ++layer) {
    const auto zeros = [&] { return at::zeros({capacity, heads, model_.head_dim}, dtype_); };
    caches.push_back({zeros(), zeros(), 0});
  }
  return caches;
}

at::Tensor Decoder::next_logits(const at::Tensor& tokens, std::vector<KvCache>& caches) {
  at::NoGradGuard no_grad;
  const int64_t start = caches.front().length, n = tokens.size(0);
  const MicroBatch batch{.tokens = tokens,
                         .labels = {},
                         .positions = at::arange(start, start + n, at::kLong),
                         .index = {},
                         .cu_seqlens = {0, n}};
  PassContext pass = context(batch, whole_tokens());
  pass.caches = &caches;
  return head_logits(run(pass).narrow(0, n - 1, 1), pass.tp).squeeze(0);
}

}  // namespace weft
