#include "weft/ops/cross_entropy.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "weft/base/error.h"
#include "weft/ops/function.h"

namespace weft {
namespace {

void cap(at::Tensor& x, double softcap) {
  if (softcap > 0) x.div_(softcap).tanh_().mul_(softcap);
}

class CrossEntropy : public Op {
 public:
  CrossEntropy(Param& head, const at::Tensor& labels, double normaliser, const CrossEntropyOptions& options)
      : head_(head), labels_(labels), normaliser_(normaliser), options_(options) {}

  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    const at::Tensor& h = inputs[0];
    const int64_t tokens = h.size(0), vocab = head_.shape()[0];
    at::Tensor dh = recording ? at::empty_like(h) : at::Tensor();
    const int64_t chunk =
        options_.chunk > 0 ? options_.chunk : std::max<int64_t>(16, (16 << 20) / (vocab * h.element_size()));
    double loss = 0, z = 0;
    for (int64_t begin = 0; begin < tokens; begin += chunk) {
      const int64_t n = std::min(chunk, tokens - begin);
      chunk_forward(h.narrow(0, begin, n), labels_.narrow(0, begin, n),
                    recording ? dh.narrow(0, begin, n) : dh, &loss, &z);
    }
    if (recording) dh_ = Saved(dh);
    const auto scalar = at::TensorOptions(at::kDouble);
    return {at::scalar_tensor(normaliser_ * (loss + options_.z_loss * z), h.options()),
            at::scalar_tensor(normaliser_ * loss, scalar)};
  }

  std::vector<at::Tensor> backward(at::TensorList grads) override {
    WEFT_ASSERT(grads[0].defined() && grads[0].item<double>() == 1,
                "the head's weight gradient is already in: its loss must be a root with gradient 1");
    return {dh_.get()};
  }

  size_t differentiable_outputs(size_t) const override { return 1; }  // not the reported loss

  const char* name() const override { return "cross_entropy"; }

  // Forward makes the logits and, if recording, the gradients; backward hands out what is there.
  Work work(Pass pass, at::TensorList taken, at::TensorList given) const override {
    if (pass == Pass::backward) return {};
    const bool adds_gradient = recording && head_.trainable();
    const double products = 1.0 + recording + adds_gradient, passes = 1.0 + 2 * adds_gradient;
    return {products * 2 * double(taken[0].size(0)) * double(head_.numel()),
            Op::work(pass, taken, given).bytes + double(labels_.nbytes()) + dh_.nbytes() +
                passes * double(head_.weight().nbytes())};
  }

 private:
  // Adds the chunk's sums of losses and of squared log-sum-exps; writes its dh and adds to the head's
  // gradient.
  void chunk_forward(const at::Tensor& h, const at::Tensor& labels, at::Tensor dh, double* loss, double* z) {
    const at::Tensor weight = head_.weight();
    at::Tensor x = at::mm(h, weight.t());
    cap(x, options_.softcap);
    const at::Tensor valid = labels >= 0;
    const at::Tensor target = labels.clamp_min(0).unsqueeze(1);
    const at::Tensor lse = x.logsumexp(1, /*keepdim=*/true);
    const at::Tensor token_loss = (lse - x.gather(1, target)).squeeze(1);
    *loss += token_loss.masked_fill(~valid, 0).sum(at::kDouble).item<double>();
    if (options_.z_loss > 0)
      *z += lse.squeeze(1).square().masked_fill(~valid, 0).sum(at::kDouble).item<double>();
    if (!recording) return;

    // d total / d x = normaliser * (softmax - one_hot + 2 z_loss lse softmax) on rows that have a target.
    const at::Tensor row = valid.to(x.scalar_type()).mul_(normaliser_).unsqueeze(1);
    at::Tensor dx = at::exp(x - lse);
    if (options_.z_loss > 0) dx.mul_(1 + 2 * options_.z_loss * lse);
    dx.scatter_add_(1, target, at::full_like(lse, -1));
    dx.mul_(row);
    if (options_.softcap > 0) dx.mul_(1 - (x / options_.softcap).square());
    at::mm_out(dh, dx, weight);
    if (head_.trainable()) add_product(head_.grad(), dx.t(), h);
  }

  Param& head_;
  at::Tensor labels_;
  double normaliser_;
  CrossEntropyOptions options_;
  Saved dh_;
};

}  // namespace

CrossEntropyOutput cross_entropy(const at::Tensor& h, Param& head, const at::Tensor& labels,
                                 double normaliser, const CrossEntropyOptions& options) {
  const auto outputs = apply(std::make_shared<CrossEntropy>(head, labels, normaliser, options), {h});
  return {outputs[0], outputs[1]};
}

at::Tensor logits(const at::Tensor& h, Param& head, double softcap) {
  at::Tensor x = at::mm(h, head.weight().t());
  cap(x, softcap);
  return x;
}

}  // namespace weft
