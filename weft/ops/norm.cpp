#include "weft/ops/norm.h"

#include <ATen/ATen.h>

#include "weft/ops/function.h"

namespace weft {
namespace {

at::Tensor effective_gain(const Param& gain, const NormOptions& options) {
  return options.unit_offset ? gain.weight() + 1 : gain.weight();
}

at::Tensor inverse_rms(const at::Tensor& x, double eps) {
  return at::rsqrt(x.square().mean(-1, /*keepdim=*/true) + eps);
}

// Returns dx; adds the gain's gradient. Everything is over the last dim.
at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& x, Param& gain, const NormOptions& options) {
  const at::Tensor r = inverse_rms(x, options.eps);
  const at::Tensor x_hat = x * r;
  const int64_t dim = x.size(-1);
  gain.grad().add_((dy * x_hat).reshape({-1, dim}).sum(0));
  const at::Tensor dx_hat = dy * effective_gain(gain, options);
  return (dx_hat - x_hat * (dx_hat * x_hat).mean(-1, /*keepdim=*/true)) * r;
}

class RmsNorm : public Op {
 public:
  RmsNorm(Param& gain, const NormOptions& options) : gain_(gain), options_(options) {}

  // {x} -> {y} or {x, residual} -> {y, x + residual}
  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    const bool has_residual = inputs.size() == 2;
    const at::Tensor sum = has_residual ? inputs[0] + inputs[1] : inputs[0];
    if (recording) sum_ = Saved(sum);
    std::vector<at::Tensor> outputs = {sum * inverse_rms(sum, options_.eps) *
                                       effective_gain(gain_, options_)};
    if (has_residual) outputs.push_back(sum);
    return outputs;
  }

  std::vector<at::Tensor> backward(at::TensorList grads) override {
    at::Tensor dx;
    if (grads[0].defined()) dx = norm_backward(grads[0], sum_.get(), gain_, options_);
    if (grads.size() == 1) return {dx};
    if (grads[1].defined()) dx = dx.defined() ? dx + grads[1] : grads[1];
    return {dx, dx};
  }

 private:
  Param& gain_;
  NormOptions options_;
  Saved sum_;
};

class QkNorm : public Op {
 public:
  QkNorm(int64_t q_heads, int64_t k_heads, Param& q_gain, Param& k_gain, const NormOptions& options)
      : q_heads_(q_heads), k_heads_(k_heads), q_gain_(q_gain), k_gain_(k_gain), options_(options) {}

  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    const at::Tensor& qkv = inputs[0];
    if (recording) qkv_ = Saved(qkv);
    at::Tensor out = qkv.clone();
    const auto norm = [&](at::Tensor heads, const Param& gain) {
      heads.copy_(heads * inverse_rms(heads, options_.eps) * effective_gain(gain, options_));
    };
    norm(q_part(out), q_gain_);
    norm(k_part(out), k_gain_);
    return {out};
  }

  std::vector<at::Tensor> backward(at::TensorList grads) override {
    at::Tensor d = grads[0].clone(at::MemoryFormat::Contiguous);
    q_part(d).copy_(norm_backward(q_part(grads[0]), q_part(qkv_.get()), q_gain_, options_));
    k_part(d).copy_(norm_backward(k_part(grads[0]), k_part(qkv_.get()), k_gain_, options_));
    return {d};
  }

 private:
  at::Tensor q_part(const at::Tensor& qkv) const { return qkv.narrow(1, 0, q_heads_); }
  at::Tensor k_part(const at::Tensor& qkv) const { return qkv.narrow(1, q_heads_, k_heads_); }

  int64_t q_heads_, k_heads_;
  Param &q_gain_, &k_gain_;
  NormOptions options_;
  Saved qkv_;
};

}  // namespace

NormOutput rms_norm(const at::Tensor& x, Param& gain, const NormOptions& options,
                    const at::Tensor& residual) {
  const auto op = std::make_shared<RmsNorm>(gain, options);
  if (!residual.defined()) return {apply(op, {x})[0], x};
  const auto outputs = apply(op, {x, residual});
  return {outputs[0], outputs[1]};
}

at::Tensor qk_norm(const at::Tensor& qkv, int64_t q_heads, int64_t k_heads, Param& q_gain, Param& k_gain,
                   const NormOptions& options) {
  return apply(std::make_shared<QkNorm>(q_heads, k_heads, q_gain, k_gain, options), {qkv})[0];
}

}  // namespace weft
