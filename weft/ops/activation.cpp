#include "weft/ops/activation.h"

#include <ATen/ATen.h>

#include "weft/ops/function.h"

namespace weft {
namespace {

c10::string_view gelu_form(Activation f) { return f == Activation::gelu_tanh ? "tanh" : "none"; }

at::Tensor value(const at::Tensor& x, Activation f) {
  return f == Activation::silu ? at::silu(x) : at::gelu(x, gelu_form(f));
}

at::Tensor derivative_times(const at::Tensor& dy, const at::Tensor& x, Activation f) {
  return f == Activation::silu ? at::silu_backward(dy, x) : at::gelu_backward(dy, x, gelu_form(f));
}

class Gated : public Op {
 public:
  explicit Gated(Activation f) : f_(f) {}

  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    if (recording) gate_up_ = Saved(inputs[0]);
    const auto [g, u] = halves(inputs[0]);
    return {value(g, f_).mul_(u)};
  }

  std::vector<at::Tensor> backward(at::TensorList grads) override {
    const auto [g, u] = halves(gate_up_.get());
    at::Tensor d = at::empty_like(gate_up_.get());
    const auto [dg, du] = halves(d);
    dg.copy_(derivative_times(grads[0] * u, g, f_));
    du.copy_(value(g, f_).mul_(grads[0]));
    return {d};
  }

  const char* name() const override { return f_ == Activation::silu ? "swiglu" : "geglu"; }
  std::vector<at::Tensor> kept() const override { return {gate_up_.get()}; }

 private:
  static std::pair<at::Tensor, at::Tensor> halves(const at::Tensor& x) {
    const int64_t half = x.size(1) / 2;
    return {x.narrow(1, 0, half), x.narrow(1, half, half)};
  }

  Activation f_;
  Saved gate_up_;
};

class Activate : public Op {
 public:
  explicit Activate(Activation f) : f_(f) {}

  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    if (recording) x_ = Saved(inputs[0]);
    return {value(inputs[0], f_)};
  }

  std::vector<at::Tensor> backward(at::TensorList grads) override {
    return {derivative_times(grads[0], x_.get(), f_)};
  }

  const char* name() const override { return f_ == Activation::silu ? "silu" : "gelu"; }
  std::vector<at::Tensor> kept() const override { return {x_.get()}; }

 private:
  Activation f_;
  Saved x_;
};

}  // namespace

at::Tensor gated(const at::Tensor& gate_up, Activation f) {
  return apply(std::make_shared<Gated>(f), {gate_up})[0];
}

at::Tensor activate(const at::Tensor& x, Activation f) {
  return apply(std::make_shared<Activate>(f), {x})[0];
}

}  // namespace weft
