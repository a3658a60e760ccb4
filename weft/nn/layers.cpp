#include "weft/nn/layers.h"

#include <cmath>

#include <ATen/ATen.h>
#include <fmt/format.h>

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

NormOptions norm_options(const ModelConfig& model) { return {model.norm_eps, model.norm_unit_offset}; }

bool is_sliding(const ModelConfig& model, int64_t layer) {
  return model.layer_types[size_t(layer) % model.layer_types.size()] == "sliding";
}

}  // namespace

Param& declare_norm(const ModelConfig& model, ParamUnit& unit, const std::string& name, int64_t size,
                    const std::set<Axis>& also_partial) {
  ParamSpec spec;
  spec.name = name + ".weight";
  spec.shape = {size};
  spec.init.constant = model.norm_unit_offset ? 0 : 1;
  spec.partial.insert(also_partial.begin(), also_partial.end());
  return unit.add(spec);
}

Linear::Linear(ParamUnit& unit, const std::vector<Part>& parts, int64_t in, bool bias, double std,
               bool column) {
  const auto declare = [&](const std::string& name, std::vector<int64_t> shape, Init init,
                           Placement placement) {
    ParamSpec spec;
    spec.name = name;
    spec.shape = std::move(shape);
    spec.init = init;
    spec.placement = placement;
    return &unit.add(spec);
  };
  for (const Part& part : parts)
    weights_.push_back(
        declare(part.name + ".weight", {part.out, in}, {std, 0}, Placement::shard(column ? 0 : 1)));
  if (!bias) return;
  const Placement placement = column ? Placement::shard(0) : Placement::replicate();
  for (const Part& part : parts) biases_.push_back(declare(part.name + ".bias", {part.out}, {}, placement));
}

Linear Linear::column(ParamUnit& unit, const std::vector<Part>& parts, int64_t in, bool bias, double std) {
  return Linear(unit, parts, in, bias, std, true);
}

Linear Linear::row(ParamUnit& unit, const Part& part, int64_t in, bool bias, double std) {
  return Linear(unit, {part}, in, bias, std, false);
}

at::Tensor Linear::forward(const at::Tensor& x) const { return linear(x, weights_, biases_); }

Dropout dropout_at(const PassContext& context, double p, const std::string& site) {
  if (!context.training || p == 0) return {};
  return {p, random_key(context.seed, context.step, site)};
}

Attention::Attention(const ModelConfig& model, int64_t layer, ParamUnit& unit)
    : layer_(layer),
      head_dim_(model.head_dim),
      rotates_(model.rope_layers[size_t(layer) % model.rope_layers.size()]),
      sliding_(is_sliding(model, layer)),
      dropout_(model.attention_dropout),
      norm_options_(norm_options(model)),
      qkv_(Linear::column(unit,
                          {{layer_name(layer, "self_attn.q_proj"), model.n_heads * model.head_dim},
                           {layer_name(layer, "self_attn.k_proj"), model.n_kv_heads * model.head_dim},
                           {layer_name(layer, "self_attn.v_proj"), model.n_kv_heads * model.head_dim}},
                          model.dim, model.qkv_bias, model.init_std)),
      o_(Linear::row(unit, {layer_name(layer, "self_attn.o_proj"), model.dim}, model.n_heads * model.head_dim,
                     model.o_bias, residual_std(model))) {
  options_.n_heads = model.n_heads;
  options_.n_kv_heads = model.n_kv_heads;
  options_.scale = model.attn_scale;
  options_.window = sliding_ ? model.sliding_window : 0;
  options_.softcap = model.attn_softcap;
  if (model.qk_norm != "none") {
    // Each tp rank norms its own heads with the same gain, so the gain's gradient is partial over tp too.
    q_norm_ = &declare_norm(model, unit, layer_name(layer, "self_attn.q_norm"), model.head_dim, {Axis::tp});
    k_norm_ = &declare_norm(model, unit, layer_name(layer, "self_attn.k_norm"), model.head_dim, {Axis::tp});
  }
}

at::Tensor Attention::forward(const at::Tensor& x, const PassContext& context) const {
  const int64_t rotated = options_.n_heads + options_.n_kv_heads;
  at::Tensor qkv = qkv_.forward(x).view({x.size(0), -1, head_dim_});
  if (q_norm_) qkv = qk_norm(qkv, options_.n_heads, options_.n_kv_heads, *q_norm_, *k_norm_, norm_options_);
  if (rotates_) qkv = rope(qkv, rotated, sliding_ ? context.rope_sliding : context.rope_full);
  if (context.caches) return o_.forward(attend_with_cache(qkv, (*context.caches)[size_t(layer_)]));

  AttentionOptions options = options_;
  options.dropout = dropout_at(context, dropout_, layer_name(layer_, "attention"));
  return o_.forward(attention(qkv, context.batch.cu_seqlens, options, context.batch.index).out);
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
    : gate_(model.activation == "silu" ? Gate::silu : Gate::gelu_tanh),
      gate_up_(Linear::column(unit,
                              {{layer_name(layer, "mlp.gate_proj"), model.ffn_dim},
                               {layer_name(layer, "mlp.up_proj"), model.ffn_dim}},
                              model.dim, model.mlp_bias, model.init_std)),
      down_(Linear::row(unit, {layer_name(layer, "mlp.down_proj"), model.dim}, model.ffn_dim, model.mlp_bias,
                        residual_std(model))) {}

at::Tensor Mlp::forward(const at::Tensor& x) const {
  return down_.forward(gated(gate_up_.forward(x), gate_));
}

DecoderLayer::DecoderLayer(const ModelConfig& model, int64_t layer, ParamUnit& unit)
    : layer_(layer),
      dropout_(model.dropout),
      norm_options_(norm_options(model)),
      attention_(model, layer, unit),
      mlp_(model, layer, unit) {
  const auto norm = [&](const char* name) {
    return &declare_norm(model, unit, layer_name(layer, name), model.dim);
  };
  const bool sandwich = model.norm_placement == "sandwich";
  input_norm_ = norm("input_layernorm");
  // Llama's post_attention_layernorm stands before the MLP; with norms on both sides it really is after
  // attention.
  if (sandwich) post_attention_norm_ = norm("post_attention_layernorm");
  mlp_norm_ = norm(sandwich ? "pre_feedforward_layernorm" : "post_attention_layernorm");
  if (sandwich) post_mlp_norm_ = norm("post_feedforward_layernorm");
}

at::Tensor DecoderLayer::forward(const at::Tensor& x, const PassContext& context) const {
  const at::Tensor& index = context.batch.index;
  at::Tensor a = attention_.forward(rms_norm(x, *input_norm_, norm_options_).y, context);
  if (post_attention_norm_) a = rms_norm(a, *post_attention_norm_, norm_options_).y;
  a = dropout(a, dropout_at(context, dropout_, layer_name(layer_, "attention_output")), index);
  const NormOutput normed = rms_norm(a, *mlp_norm_, norm_options_, x);
  at::Tensor m = mlp_.forward(normed.y);
  if (post_mlp_norm_) m = rms_norm(m, *post_mlp_norm_, norm_options_).y;
  return normed.residual + dropout(m, dropout_at(context, dropout_, layer_name(layer_, "mlp_output")), index);
}

}  // namespace weft
