#include "weft/nn/layers.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "weft/base/trace.h"
#include "weft/ops/linear.h"

namespace weft {
namespace {

std::string layer_name(int64_t layer, const char* part) {
  return fmt::format("model.layers.{}.{}", layer, part);
}

// Projections that write into the residual stream start smaller, so that its variance does not grow with
// depth.
double residual_std(const ModelConfig& model) {
  return model.init_std / std::sqrt(2.0 * double(model.n_layers));
}

ParamSpec gain_of(const ModelConfig& model, const std::string& name, int64_t size) {
  return {.name = name + ".weight",
          .shape = {size},
          .init = {.std = model.norm_init_std, .mean = model.norm_unit_offset ? 0.0 : 1.0}};
}

// How many tp ranks hold each key/value head. Error, with the values of tp that work, if tp does not divide
// the heads: asked before a param is declared, which would know only of itself.
int64_t kv_copies(const ModelConfig& model, const ParamUnit& unit) {
  check_tensor_parallel(model, unit.tensor_place().size);
  return std::max<int64_t>(1, unit.tensor_place().size / model.n_kv_heads);
}

Activation activation_named(const std::string& name) {
  if (name == "silu") return Activation::silu;
  return name == "gelu" ? Activation::gelu : Activation::gelu_tanh;
}

std::vector<Linear::Part> up_parts(const ModelConfig& model, int64_t layer) {
  const Linear::Part up = {layer_name(layer, "mlp.up_proj"), model.ffn_dim};
  if (model.mlp == "plain") return {up};
  return {{layer_name(layer, "mlp.gate_proj"), model.ffn_dim}, up};
}

NormOptions norm_options(const ModelConfig& model) { return {model.norm_eps, model.norm_unit_offset}; }

}  // namespace

ParamSpec per_token(ParamSpec spec, const ParamUnit& unit) {
  if (unit.tensor_place().sequence_parallel) spec.partial.insert(Axis::tp);
  return spec;
}

Norm::Norm(const ModelConfig& model, ParamUnit& unit, const std::string& name)
    : options_(norm_options(model)), gain_(&unit.add(per_token(gain_of(model, name, model.dim), unit))) {
  if (model.norm == "layernorm")
    bias_ = &unit.add(per_token({.name = name + ".bias", .shape = {model.dim}}, unit));
}

NormOutput Norm::forward(const at::Tensor& x, const at::Tensor& residual) const {
  const KindScope scope(SpanKind::norm);
  return bias_ ? layer_norm(x, *gain_, *bias_, options_, residual) : rms_norm(x, *gain_, options_, residual);
}

Linear::Linear(ParamUnit& unit, const std::vector<Part>& parts, int64_t in, bool bias, double std,
               bool column)
    : column_(column) {
  for (const Part& part : parts)
    weights_.push_back(&unit.add({.name = part.name + ".weight",
                                  .shape = {part.out, in},
                                  .init = {.std = std},
                                  .placement = Placement::shard(column ? 0 : 1, part.copies)}));
  if (!bias) return;
  for (const Part& part : parts) {
    ParamSpec spec{.name = part.name + ".bias", .shape = {part.out}};
    if (column) spec.placement = Placement::shard(0, part.copies);
    biases_.push_back(&unit.add(column ? spec : per_token(spec, unit)));
  }
}

Linear Linear::column(ParamUnit& unit, const std::vector<Part>& parts, int64_t in, bool bias, double std) {
  return Linear(unit, parts, in, bias, std, true);
}

Linear Linear::row(ParamUnit& unit, const Part& part, int64_t in, bool bias, double std) {
  return Linear(unit, {part}, in, bias, std, false);
}

at::Tensor Linear::forward(const at::Tensor& x, const TensorParallel& tp) const {
  return column_ ? column_linear(x, weights_, biases_, tp) : row_linear(x, weights_, biases_, tp);
}

Dropout dropout_at(const PassContext& context, double p, const std::string& site) {
  if (!context.training || p == 0) return {};
  return {p, random_key(context.seed, context.step, site)};
}

Attention::Attention(const ModelConfig& model, int64_t layer, ParamUnit& unit)
    : layer_(layer),
      head_dim_(model.head_dim),
      rotates_(model.position == "rope" && model.rope_layers[size_t(layer) % model.rope_layers.size()]),
      sliding_(is_sliding(model, layer)),
      dropout_(model.attention_dropout),
      norm_options_(norm_options(model)),
      qkv_(Linear::column(
          unit,
          {{layer_name(layer, "self_attn.q_proj"), model.n_heads * model.head_dim},
           {layer_name(layer, "self_attn.k_proj"), model.n_kv_heads * model.head_dim, kv_copies(model, unit)},
           {layer_name(layer, "self_attn.v_proj"), model.n_kv_heads * model.head_dim,
            kv_copies(model, unit)}},
          model.dim, model.qkv_bias, model.init_std)),
      o_(Linear::row(unit, {layer_name(layer, "self_attn.o_proj"), model.dim}, model.n_heads * model.head_dim,
                     model.o_bias, residual_std(model))) {
  const TensorPlace& place = unit.tensor_place();
  options_.n_heads = model.n_heads / place.size;
  options_.n_kv_heads = model.n_kv_heads * kv_copies(model, unit) / place.size;
  options_.first_head = place.rank * options_.n_heads;
  options_.all_heads = model.n_heads;
  options_.scale = model.attn_scale;
  options_.window = sliding_ ? model.sliding_window : 0;
  options_.softcap = model.attn_softcap;
  if (model.position == "alibi") {
    const std::vector<double> all = alibi_slopes(model.n_heads);
    const auto first = all.begin() + options_.first_head;
    options_.alibi_slopes = {first, first + options_.n_heads};
  }
  if (model.qk_norm == "none") return;
  const auto gain = [&](const char* name, int64_t heads, int64_t copies) {
    const bool per_head = model.qk_norm == "head";
    ParamSpec spec = gain_of(model, layer_name(layer, name), per_head ? head_dim_ : heads * head_dim_);
    // Each tp rank norms its own heads: with one gain for every head its gradient is partial over tp too.
    per_head ? void(spec.partial.insert(Axis::tp)) : void(spec.placement = Placement::shard(0, copies));
    return &unit.add(spec);
  };
  q_norm_ = gain("self_attn.q_norm", model.n_heads, 1);
  k_norm_ = gain("self_attn.k_norm", model.n_kv_heads, kv_copies(model, unit));
}

at::Tensor Attention::forward(const at::Tensor& x, const PassContext& context) const {
  const KindScope scope(SpanKind::attention);
  const int64_t rotated = options_.n_heads + options_.n_kv_heads;
  at::Tensor qkv = qkv_.forward(x, context.tp);
  qkv = qkv.view({qkv.size(0), -1, head_dim_});
  if (q_norm_)
    qkv = qk_norm(qkv, options_.n_heads, options_.n_kv_heads, *q_norm_, *k_norm_, norm_options_, context.tp);
  if (rotates_) qkv = rope(qkv, rotated, sliding_ ? context.rope_sliding : context.rope_full);
  if (context.caches)
    return o_.forward(attend_with_cache(qkv, (*context.caches)[size_t(layer_)]), context.tp);

  AttentionOptions options = options_;
  options.dropout = dropout_at(context, dropout_, layer_name(layer_, "attention"));
  return o_.forward(attention(qkv, context.batch.cu_seqlens, options, context.batch.index).out, context.tp);
}

double Attention::flops_per_token(int64_t seq_len) const {
  const auto length = double(seq_len), window = std::min(double(options_.window), length);
  const double keys = sliding_ ? window - window * window / (2 * length) : length / 2;
  return 4 * keys * double(options_.all_heads * head_dim_);
}

at::Tensor Attention::attend_with_cache(const at::Tensor& qkv, KvCache& cache) const {
  const int64_t tokens = qkv.size(0), h = options_.n_heads, kv = options_.n_kv_heads;
  cache.k.narrow(0, cache.length, tokens).copy_(qkv.narrow(1, h, kv));
  cache.v.narrow(0, cache.length, tokens).copy_(qkv.narrow(1, h + kv, kv));
  cache.length += tokens;
  return attention_forward(qkv.narrow(1, 0, h), cache.k, cache.v, {{0, tokens, 0, cache.length}}, options_)
      .out;
}

Mlp::Mlp(const ModelConfig& model, int64_t layer, ParamUnit& unit)
    : gated_(model.mlp == "gated"),
      activation_(activation_named(model.activation)),
      up_(Linear::column(unit, up_parts(model, layer), model.dim, model.mlp_bias, model.init_std)),
      down_(Linear::row(unit, {layer_name(layer, "mlp.down_proj"), model.dim}, model.ffn_dim, model.mlp_bias,
                        residual_std(model))) {}

at::Tensor Mlp::forward(const at::Tensor& x, const PassContext& context) const {
  const KindScope scope(SpanKind::mlp);
  const at::Tensor up = up_.forward(x, context.tp);
  return down_.forward(gated_ ? gated(up, activation_) : activate(up, activation_), context.tp);
}

DecoderLayer::DecoderLayer(const ModelConfig& model, int64_t layer, ParamUnit& unit)
    : layer_(layer),
      dropout_(model.dropout),
      residual_multiplier_(model.residual_multiplier),
      parallel_(model.block != "sequential"),
      attention_(model, layer, unit),
      mlp_(model, layer, unit) {
  const auto norm = [&](const char* name) { return Norm(model, unit, layer_name(layer, name)); };
  const std::string& placement = model.norm_placement;
  if (placement != "post") input_norm_ = norm("input_layernorm");
  if (placement != "pre") {
    post_attention_norm_ = norm("post_attention_layernorm");
    post_mlp_norm_ = norm("post_feedforward_layernorm");
  }
  // Llama's post_attention_layernorm stands before the MLP; with norms on both sides it really is after
  // attention.
  if (placement == "pre" && model.block != "parallel_shared_norm")
    mlp_norm_ = norm("post_attention_layernorm");
  if (placement == "sandwich") mlp_norm_ = norm("pre_feedforward_layernorm");
}

at::Tensor DecoderLayer::branch(const at::Tensor& out, const std::optional<Norm>& post_norm, const char* site,
                                const PassContext& context) const {
  const at::Tensor normed = post_norm ? post_norm->forward(out) : out;
  const at::Tensor x =
      dropout(normed, dropout_at(context, dropout_, layer_name(layer_, site)), context.index);
  return residual_multiplier_ == 1 ? x : x * residual_multiplier_;
}

at::Tensor DecoderLayer::forward(const at::Tensor& x, const PassContext& context) const {
  const at::Tensor input = input_norm_ ? input_norm_->forward(x) : x;
  const at::Tensor a =
      branch(attention_.forward(input, context), post_attention_norm_, "attention_output", context);
  const auto mlp = [&](const at::Tensor& h) {
    return branch(mlp_.forward(h, context), post_mlp_norm_, "mlp_output", context);
  };
  if (parallel_) return x + a + mlp(mlp_norm_ ? mlp_norm_->forward(x) : input);
  if (!mlp_norm_) {
    const at::Tensor h = x + a;
    return h + mlp(h);
  }
  const NormOutput h = mlp_norm_->forward(a, x);
  return h.residual + mlp(h.y);
}

}  // namespace weft
