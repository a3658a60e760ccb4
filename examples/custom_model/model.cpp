// A language model without attention: minGRU (Feng et al., "Were RNNs All We Needed?", 2024). Its layers are
// two blocks each, a recurrence and an MLP, so that ZeRO gathers and recomputation repeats half a layer at a
// time:
//
//   z_t = sigmoid(W_z x_t),  h_t = (1 - z_t) h_(t-1) + z_t g(W_h x_t),  g(a) = a + 1/2 if a >= 0, else
//   sigmoid(a)
//
// The gates do not depend on h, so all tokens are done at once, by a scan in log space (appendix B there).
#include <weft/nn/architecture.h>
#include <weft/nn/embedding.h>
#include <weft/nn/layers.h>

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace {

using weft::Linear, weft::ModelConfig, weft::ParamUnit;

std::string name_of(int64_t layer, const char* part) {
  return fmt::format("model.layers.{}.{}", layer, part);
}

/// y = x + W_o h. Features are split over tensor-parallel ranks: each scans its own, over all tokens.
class Recurrence : public weft::Block {
 public:
  Recurrence(const ModelConfig& model, int64_t layer, ParamUnit& unit)
      : norm_(model, unit, name_of(layer, "recurrence_norm")),
        in_(Linear::column(unit,
                           {{name_of(layer, "recurrence.z_proj"), model.ffn_dim},
                            {name_of(layer, "recurrence.h_proj"), model.ffn_dim}},
                           model.dim, false, model.init_std)),
        out_(Linear::row(unit, {name_of(layer, "recurrence.o_proj"), model.dim}, model.ffn_dim, false,
                         model.init_std)) {}

  at::Tensor forward(const at::Tensor& x, const weft::PassContext& context) const override {
    const std::vector<at::Tensor> parts = in_.forward(norm_.forward(x), context.tp).chunk(2, 1);
    const at::Tensor &z = parts[0], &a = parts[1];
    const at::Tensor log_keep = -at::softplus(z);  // log(1 - z_t)
    const at::Tensor log_g = at::where(a >= 0, at::log(at::relu(a) + 0.5), -at::softplus(-a));
    const at::Tensor log_new = log_g - at::softplus(-z);  // log(z_t g_t)
    std::vector<at::Tensor> h;
    const std::vector<int64_t>& bounds = context.batch.cu_seqlens;
    for (size_t d = 0; d + 1 < bounds.size(); ++d) {  // each document begins with h = 0
      const at::Tensor kept = at::cumsum(log_keep.slice(0, bounds[d], bounds[d + 1]), 0);
      h.push_back(at::exp(kept + at::logcumsumexp(log_new.slice(0, bounds[d], bounds[d + 1]) - kept, 0)));
    }
    return x + out_.forward(at::cat(h), context.tp);
  }

 private:
  weft::Norm norm_;
  Linear in_, out_;
};

class MlpBlock : public weft::Block {
 public:
  MlpBlock(const ModelConfig& model, int64_t layer, ParamUnit& unit)
      : norm_(model, unit, name_of(layer, "mlp_norm")), mlp_(model, layer, unit) {}

  at::Tensor forward(const at::Tensor& x, const weft::PassContext& context) const override {
    return x + mlp_.forward(norm_.forward(x), context);
  }

 private:
  weft::Norm norm_;
  weft::Mlp mlp_;
};

void build(const ModelConfig& model, weft::Architecture& all) {
  weft::Param& tokens = all.add<weft::Embedding>("embedding", model).tokens();
  for (int64_t layer = 0; layer < model.n_layers; ++layer) {
    all.add<Recurrence>(fmt::format("recurrence.{}", layer), model, layer);
    all.add<MlpBlock>(fmt::format("mlp.{}", layer), model, layer);
  }
  all.add_head(model, tokens);
}

const bool registered = weft::register_architecture("min-gru", build);

}  // namespace
