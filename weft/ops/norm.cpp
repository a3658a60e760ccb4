#include "weft/ops/norm.h"

#include <functional>

#include <ATen/ATen.h>

#include "weft/ops/function.h"

namespace weft {
namespace {

using Mean = std::function<at::Tensor(const at::Tensor&)>;  // of each row

at::Tensor row_mean(const at::Tensor& x) { return x.mean(-1, /*keepdim=*/true); }

at::Tensor effective_gain(const Param& gain, const NormOptions& options) {
  return options.unit_offset ? gain.weight() + 1 : gain.weight();
}

at::Tensor inverse_rms(const at::Tensor& x, double eps, const Mean& mean = row_mean) {
  return at::rsqrt(mean(x.square()) + eps);
}

// Returns the gradient of x, whose mean square is normalised; adds the gain's.
at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& x, Param& gain, const NormOptions& options,
                         const Mean& mean = row_mean) {
  const at::Tensor r = inverse_rms(x, options.eps, mean);
  const at::Tensor x_hat = x * r;
  const int64_t dim = x.size(-1);
  if (gain.trainable()) gain.grad().add_((dy * x_hat).reshape({-1, dim}).sum(0));
  const at::Tensor dx_hat = dy * effective_gain(gain, options);
  return (dx_hat - x_hat * mean(dx_hat * x_hat)) * r;
}

// With a bias it is LayerNorm: RMSNorm of the centred vector.
class Norm : public Op {
 public:
  Norm(Param& gain, Param* bias, const NormOptions& options) : gain_(gain), bias_(bias), options_(options) {}

  // {x} -> {y} or {x, residual} -> {y, x + residual}
  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    const bool has_residual = inputs.size() == 2;
    const at::Tensor sum = has_residual ? inputs[0] + inputs[1] : inputs[0];
    if (recording) sum_ = Saved(sum);
    const at::Tensor x = centred(sum);
    at::Tensor y = x * inverse_rms(x, options_.eps) * effective_gain(gain_, options_);
    if (bias_) y.add_(bias_->weight());
    return has_residual ? std::vector<at::Tensor>{y, sum} : std::vector<at::Tensor>{y};
  }

  std::vector<at::Tensor> backward(at::TensorList grads) override {
    at::Tensor dx;
    if (grads[0].defined()) {
      if (bias_ && bias_->trainable()) bias_->grad().add_(grads[0].sum(0));
      // Centring is a projection: its transpose centres the gradient.
      dx = centred(norm_backward(grads[0], centred(sum_.get()), gain_, options_));
    }
    if (grads.size() == 1) return {dx};
    if (grads[1].defined()) dx = dx.defined() ? dx + grads[1] : grads[1];
    return {dx, dx};
  }

  const char* name() const override { return bias_ ? "layer_norm" : "rms_norm"; }
  std::vector<at::Tensor> kept() const override { return {sum_.get()}; }

 private:
  at::Tensor centred(const at::Tensor& x) const { return bias_ ? x - row_mean(x) : x; }

  Param& gain_;
  Param* bias_;
  NormOptions options_;
  Saved sum_;
};

NormOutput apply_norm(const at::Tensor& x, Param& gain, Param* bias, const NormOptions& options,
                      const at::Tensor& residual) {
  const auto op = std::make_shared<Norm>(gain, bias, options);
  if (!residual.defined()) return {apply(op, {x})[0], x};
  const auto outputs = apply(op, {x, residual});
  return {outputs[0], outputs[1]};
}

class QkNorm : public Op {
 public:
  QkNorm(int64_t q_heads, int64_t k_heads, Param& q_gain, Param& k_gain, const NormOptions& options,
         const TensorParallel& tp)
      : q_heads_(q_heads), k_heads_(k_heads), q_gain_(q_gain), k_gain_(k_gain), options_(options), tp_(tp) {}

  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    const at::Tensor& qkv = inputs[0];
    if (recording) qkv_ = Saved(qkv);
    at::Tensor out = qkv.clone(at::MemoryFormat::Contiguous);
    const auto norm = [&](at::Tensor heads, const Param& gain) {
      heads.copy_(heads * inverse_rms(heads, options_.eps, mean_of(gain)) * effective_gain(gain, options_));
    };
    norm(q_part(out), q_gain_);
    norm(k_part(out), k_gain_);
    return {out};
  }

  std::vector<at::Tensor> backward(at::TensorList grads) override {
    at::Tensor d = grads[0].clone(at::MemoryFormat::Contiguous);
    q_part(d).copy_(norm_backward(q_part(d), q_part(qkv_.get()), q_gain_, options_, mean_of(q_gain_)));
    k_part(d).copy_(norm_backward(k_part(d), k_part(qkv_.get()), k_gain_, options_, mean_of(k_gain_)));
    return {d};
  }

  const char* name() const override { return "qk_norm"; }
  std::vector<at::Tensor> kept() const override { return {qkv_.get()}; }

 private:
  // Where a vector lies on several ranks, its mean is over all of them. Heads of which there are copies count
  // that often in sum and number; in backward each copy so gets its part of the gradient.
  Mean mean_of(const Param& gain) const {
    if (gain.spec().placement.kind == Placement::Kind::Replicate || tp_.size() == 1) return row_mean;
    return [this](const at::Tensor& x) {
      at::Tensor mean = row_mean(x).contiguous();
      tp_.group->all_reduce(mean).wait();
      return mean.div_(double(tp_.size()));
    };
  }

  // [tokens, vectors, size of the gain]: a vector is a head, or all of them. A view where qkv is contiguous.
  static at::Tensor vectors(const at::Tensor& heads, const Param& gain) {
    return heads.reshape({heads.size(0), -1, gain.numel()});
  }
  at::Tensor q_part(const at::Tensor& qkv) const { return vectors(qkv.narrow(1, 0, q_heads_), q_gain_); }
  at::Tensor k_part(const at::Tensor& qkv) const {
    return vectors(qkv.narrow(1, q_heads_, k_heads_), k_gain_);
  }

  int64_t q_heads_, k_heads_;
  Param &q_gain_, &k_gain_;
  NormOptions options_;
  TensorParallel tp_;
  Saved qkv_;
};

}  // namespace

NormOutput rms_norm(const at::Tensor& x, Param& gain, const NormOptions& options,
                    const at::Tensor& residual) {
  return apply_norm(x, gain, nullptr, options, residual);
}

NormOutput layer_norm(const at::Tensor& x, Param& gain, Param& bias, const NormOptions& options,
                      const at::Tensor& residual) {
  return apply_norm(x, gain, &bias, options, residual);
}

at::Tensor qk_norm(const at::Tensor& qkv, int64_t q_heads, int64_t k_heads, Param& q_gain, Param& k_gain,
                   const NormOptions& options, const TensorParallel& tp) {
  return apply(std::make_shared<QkNorm>(q_heads, k_heads, q_gain, k_gain, options, tp), {qkv})[0];
}

}  // namespace weft
