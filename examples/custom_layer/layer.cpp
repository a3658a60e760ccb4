// A layer that Weft does not have, from ATen ops. Its MLP is activated by Swish with a learnt slope for each
// feature, x sigmoid(beta x) (Ramachandran et al., "Searching for Activation Functions", 2017), and each
// channel of what attention and MLP add to the residual stream is scaled (LayerScale: Touvron et al., "Going
// Deeper with Image Transformers", 2021).
//
// It declares its params and writes forward. Gradients, ZeRO, tensor parallelism, initialisation, checkpoints
// and recomputation follow from the declarations.
#include <weft/nn/architecture.h>
#include <weft/nn/layers.h>
#include <weft/ops/function.h>

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace {

using weft::ModelConfig, weft::Param, weft::ParamUnit;

std::string name_of(int64_t layer, const char* part) {
  return fmt::format("model.layers.{}.{}", layer, part);
}

class Layer : public weft::Block {
 public:
  Layer(const ModelConfig& model, int64_t layer, ParamUnit& unit)
      : attention_norm_(model, unit, name_of(layer, "input_layernorm")),
        attention_(model, layer, unit),
        mlp_norm_(model, unit, name_of(layer, "post_attention_layernorm")),
        up_(weft::Linear::column(unit, {{name_of(layer, "mlp.up_proj"), model.ffn_dim}}, model.dim, false,
                                 model.init_std)),
        down_(weft::Linear::row(unit, {name_of(layer, "mlp.down_proj"), model.dim}, model.ffn_dim, false,
                                model.init_std)) {
    // A slope per feature: each tensor-parallel rank has those of its features.
    beta_ = &unit.add({.name = name_of(layer, "mlp.beta"),
                       .shape = {model.ffn_dim},
                       .init = {.std = 0.1, .mean = 1},
                       .placement = weft::Placement::shard(0)});
    // A scale per channel: every rank has all, and applies it to the tokens it has.
    const auto scale = [&](const char* part) {
      return &unit.add(
          weft::per_token({.name = name_of(layer, part), .shape = {model.dim}, .init = {.mean = 0.5}}, unit));
    };
    attention_scale_ = scale("attention_scale");
    mlp_scale_ = scale("mlp_scale");
  }

  at::Tensor forward(const at::Tensor& x, const weft::PassContext& context) const override {
    using weft::as_tensor;
    const at::Tensor attended = attention_.forward(attention_norm_.forward(x), context);
    const at::Tensor h = x + as_tensor(*attention_scale_) * attended;
    const at::Tensor up = up_.forward(mlp_norm_.forward(h), context.tp);
    const at::Tensor swish = up * at::sigmoid(as_tensor(*beta_) * up);
    return h + as_tensor(*mlp_scale_) * down_.forward(swish, context.tp);
  }

  // Attention keeps keys and values; all else is done token by token.
  bool takes_next_tokens() const override { return true; }

  double flops_per_token(int64_t seq_len) const override { return attention_.flops_per_token(seq_len); }

 private:
  weft::Norm attention_norm_;
  weft::Attention attention_;
  weft::Norm mlp_norm_;
  weft::Linear up_, down_;
  Param *beta_, *attention_scale_, *mlp_scale_;
};

const bool registered = weft::register_architecture("learnt-swish", weft::stack_of<Layer>);

}  // namespace
