#include "weft/ops/activation.h"

#include <ATen/ATen.h>

#include "weft/ops/function.h"

namespace weft {
namespace {

class Gated : public Op {
 public:
  explicit Gated(Gate gate) : gate_(gate) {}

  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    if (recording) gate_up_ = Saved(inputs[0]);
    const auto [g, u] = halves(inputs[0]);
    return {f(g).mul_(u)};
  }

  std::vector<at::Tensor> backward(at::TensorList grads) override {
    const auto [g, u] = halves(gate_up_.get());
    at::Tensor d = at::empty_like(gate_up_.get());
    const auto [dg, du] = halves(d);
    const at::Tensor df = grads[0] * u;
    dg.copy_(gate_ == Gate::silu ? at::silu_backward(df, g) : at::gelu_backward(df, g, "tanh"));
    du.copy_(f(g).mul_(grads[0]));
    return {d};
  }

 private:
  at::Tensor f(const at::Tensor& g) const { return gate_ == Gate::silu ? at::silu(g) : at::gelu(g, "tanh"); }
  static std::pair<at::Tensor, at::Tensor> halves(const at::Tensor& x) {
    const int64_t half = x.size(1) / 2;
    return {x.narrow(1, 0, half), x.narrow(1, half, half)};
  }

  Gate gate_;
  Saved gate_up_;
};

}  // namespace

at::Tensor gated(const at::Tensor& gate_up, Gate gate) {
  return apply(std::make_shared<Gated>(gate), {gate_up})[0];
}

}  // namespace weft
