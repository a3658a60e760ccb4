#include "weft/nn/decoder.h"

#include <algorithm>

#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/progress.h"
#include "weft/base/trace.h"
#include "weft/comm/place.h"
#include "weft/nn/embedding.h"
#include "weft/ops/function.h"

namespace weft {
namespace {

// How traces call a block.
const char* block_name(size_t block) { return block == 0 ? "embedding" : "layer"; }
int64_t layer_of(size_t block) { return int64_t(block) - 1; }

}  // namespace

Decoder::Decoder(const ModelConfig& model, at::ScalarType dtype)
    : Decoder(model, Dtypes(dtype), ParallelConfig{}, MeshGroups::alone()) {}

Decoder::Decoder(const ModelConfig& model, const Dtypes& dtypes, const ParallelConfig& parallel,
                 MeshGroups& groups)
    : model_(model),
      dtype_(dtypes.compute),
      tp_{&groups.get({Axis::tp}), parallel.sequence_parallel && groups.mesh().size(Axis::tp) > 1,
          parallel.async_tp},
      parts_(build_architecture(model, [this, dtypes](const std::string& name) -> ParamUnit& {
        const TensorPlace place{tp_.rank(), tp_.size(), tp_.sequence};
        return *units_.emplace_back(std::make_unique<ParamUnit>(name, dtypes, place));
      })) {
  check_memory(parallel, groups);
  data_parallel_ = std::make_unique<DataParallel>(parallel, groups, units_, tied_units());
}

void Decoder::check_memory(const ParallelConfig& parallel, MeshGroups& groups) const {
  const Mesh& mesh = groups.mesh();
  const auto shards = double(mesh.size(Axis::tp) * (parallel.zero == 3 ? mesh.size(Axis::dp_shard) : 1));
  const auto ranks = std::min<int64_t>(find_place().local_size, groups.all().size());  // on this machine
  const double needed = double(ranks) * 2.0 * double(numel()) * double(at::elementSize(dtype_)) / shards;
  const double machine = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  if (needed > machine)
    fail(
        "the model's {} parameters take {}B for weights and gradients alone on this machine's {} ranks, and "
        "it has {}B: make model.dim, n_layers or vocab_size smaller, divide the model with parallel.zero = 3 "
        "or parallel.tp, or take more machines",
        short_count(double(numel())), short_count(needed), ranks, short_count(machine));
}

void Decoder::initialise(uint64_t seed) {
  for (const auto& unit : units_) unit->initialise(seed);
  data_parallel_->publish();
}

std::vector<ParamUnit*> Decoder::units_of(size_t block) const {
  std::vector<ParamUnit*> units{units_[block].get()};
  if (ParamUnit* of_weight = &parts_.head()->weight().unit();
      block == head_block() && of_weight != units.front())
    units.push_back(of_weight);
  return units;
}

std::vector<ParamUnit*> Decoder::tied_units() const {
  std::vector<ParamUnit*> units = units_of(head_block());
  units.erase(units.begin());
  return units;
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

at::Tensor Decoder::forward(size_t block, const at::Tensor& x, const PassContext& pass) const {
  const Span span(SpanLevel::block, block_name(block), {.pass = Pass::forward, .index = layer_of(block)});
  return blocks()[block]->forward(x, pass);
}

CrossEntropyOutput Decoder::head_loss(const at::Tensor& x, const PassContext& pass, double normaliser,
                                      const CrossEntropyOptions& options) const {
  const Span span(SpanLevel::block, "head", {.pass = Pass::forward});
  return parts_.head()->loss(x, pass, normaliser, options);
}

double Decoder::forward_backward(const MicroBatch& unpadded, double normaliser,
                                 const CrossEntropyOptions& loss, uint64_t seed, int64_t step,
                                 bool last_of_step) {
  const MicroBatch batch = padded(unpadded, tp_.sequence ? tp_.size() : 1);
  PassContext pass = context(batch, tp_);
  pass.training = true, pass.seed = seed, pass.step = step;

  const auto leaf = [](const at::Tensor& x) { return x.defined() ? x.detach().requires_grad_() : x; };
  // Units before the first that is trained need no backward, so their blocks keep nothing.
  const size_t first = first_trainable_unit();
  at::Tensor x;
  // Of the blocks that backward passes through. An undefined output is computed again.
  std::vector<at::Tensor> inputs, outputs;
  for (size_t block = 0; block < head_block(); ++block) {
    const Gathered gathered(*data_parallel_, units_of(block), units_of(block + 1));
    const bool passes = block >= first, recomputes = recompute_ && block > 0;
    const at::AutoGradMode records(passes && !recomputes);
    if (passes) inputs.push_back(x = leaf(x));
    x = forward(block, x, pass);
    if (!passes) continue;
    // What as_tensor() gave lies in a buffer that may hold another unit's weights by the time of backward.
    const bool keeps = !recomputes && (units_[block]->weights_stay() || !units_[block]->used_as_tensor());
    outputs.push_back(keeps ? x : at::Tensor());
  }

  const auto backward_block = [](const char* name, int64_t index, const at::Tensor& output,
                                 const at::Tensor& output_grad) {
    const Span span(SpanLevel::block, name, {.pass = Pass::backward, .index = index});
    backward(output, output_grad);
  };
  // Whose weights a block's backward computes with.
  const auto backward_units = [&](size_t block) {
    const bool reads = block == head_block() || !outputs[block - first].defined() ||
                       blocks()[block]->backward_reads_weights();
    return reads ? units_of(block) : std::vector<ParamUnit*>{};
  };
  const auto units_before = [&](size_t block) {
    return block > first ? backward_units(block - 1) : std::vector<ParamUnit*>{};
  };
  at::Tensor grad;
  const CrossEntropyOutput head = [&] {
    const std::vector<ParamUnit*> units = units_of(head_block());
    const Gathered gathered(*data_parallel_, units, units_before(head_block()));
    for (ParamUnit* unit : units) data_parallel_->begin_gradients(*unit);
    const at::Tensor input = leaf(x);
    const CrossEntropyOutput output = head_loss(input, pass, normaliser, loss);
    backward_block("head", -1, output.total, at::ones_like(output.total));
    grad = input.grad();
    for (ParamUnit* unit : units)  // a tied embedding gets gradients from its own block too
      data_parallel_->reduce(*unit, unit == units.front(), last_of_step);
    return output;
  }();
  for (size_t block = head_block(); !outputs.empty();) {
    --block;
    ParamUnit& unit = *units_[block];
    const Gathered gathered(*data_parallel_, backward_units(block), units_before(block));
    data_parallel_->begin_gradients(unit);
    if (!outputs.back().defined()) outputs.back() = forward(block, inputs.back(), pass);
    backward_block(block_name(block), layer_of(block), outputs.back(), grad);
    if (inputs.back().defined()) grad = inputs.back().grad();
    outputs.pop_back();  // frees the block's graph
    inputs.pop_back();
    data_parallel_->reduce(unit, /*complete=*/true, last_of_step);
  }
  return head.loss.item<double>();
}

at::Tensor Decoder::run(const PassContext& pass) const {
  at::Tensor x;
  for (size_t block = 0; block < head_block(); ++block) {
    const Gathered gathered(*data_parallel_, units_of(block), units_of(block + 1));
    x = forward(block, x, pass);
  }
  return x;
}

double Decoder::loss(const MicroBatch& unpadded, double normaliser, int64_t chunk) {
  at::NoGradGuard no_grad;
  const MicroBatch batch = padded(unpadded, tp_.sequence ? tp_.size() : 1);
  const PassContext pass = context(batch, tp_);
  const at::Tensor x = run(pass);
  const Gathered gathered(*data_parallel_, units_of(head_block()));
  return head_loss(x, pass, normaliser, {.chunk = chunk}).loss.item<double>();
}

at::Tensor Decoder::head_logits(const at::Tensor& x, const TensorParallel& tp) const {
  const Gathered gathered(*data_parallel_, units_of(head_block()));
  return parts_.head()->logits(x, tp);
}

at::Tensor Decoder::logits(const MicroBatch& batch) {
  at::NoGradGuard no_grad;
  return head_logits(run(context(batch, whole_tokens())), whole_tokens());
}

Caches Decoder::make_caches(int64_t capacity) const {
  check_length(model_, capacity);
  Caches caches{{}, at::empty({0}, at::kLong)};
  const int64_t heads = std::max<int64_t>(1, model_.n_kv_heads / tp_.size());
  for (int64_t layer = 0; layer < model_.n_layers; ++layer) {
    const auto zeros = [&] { return at::zeros({capacity, heads, model_.head_dim}, dtype_); };
    caches.layers.push_back({zeros(), zeros(), 0});
  }
  return caches;
}

at::Tensor Decoder::next_logits(const at::Tensor& next, Caches& caches) {
  at::NoGradGuard no_grad;
  const bool only_next = std::ranges::all_of(blocks(), &Block::takes_next_tokens);
  const int64_t start = only_next ? caches.tokens.size(0) : 0;
  caches.tokens = at::cat({caches.tokens, next});
  const at::Tensor tokens = caches.tokens.slice(0, start);
  const int64_t n = tokens.size(0);
  const MicroBatch batch{.tokens = tokens,
                         .labels = {},
                         .positions = at::arange(start, start + n, at::kLong),
                         .index = {},
                         .cu_seqlens = {0, n}};
  PassContext pass = context(batch, whole_tokens());
  if (only_next) pass.caches = &caches.layers;
  return head_logits(run(pass).narrow(0, n - 1, 1), pass.tp).squeeze(0);
}

}  // namespace weft
