#include "weft/ops/cross_entropy.h"

#include <algorithm>
#include <cmath>

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
  CrossEntropy(Param& head, const at::Tensor& labels, double normaliser, const CrossEntropyOptions& options,
               const TensorParallel& tp)
      : head_(head), labels_(labels), normaliser_(normaliser), options_(options), tp_(tp) {}

  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    if ((labels_ >= head_.shape()[0]).any().item<bool>())
      fail("label {} is outside the vocabulary of {}", labels_.max().item<int64_t>(), head_.shape()[0]);
    const at::Tensor h = tp_.enter(inputs[0]).wait();
    const int64_t tokens = h.size(0), vocab = head_.local_shape()[0];
    at::Tensor dh = recording ? at::empty_like(h, at::MemoryFormat::Contiguous) : at::Tensor();
    const int64_t chunk =
        options_.chunk > 0 ? options_.chunk : std::max<int64_t>(16, (16 << 20) / (vocab * h.element_size()));
    double loss = 0, z = 0;
    for (int64_t begin = 0; begin < tokens; begin += chunk) {
      const int64_t n = std::min(chunk, tokens - begin);
      chunk_forward(h.narrow(0, begin, n), labels_.narrow(0, begin, n),
                    recording ? dh.narrow(0, begin, n) : dh, &loss, &z);
    }
    if (recording) dh_ = Saved(tp_.leave(dh).wait());
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
  std::vector<at::Tensor> kept() const override { return {dh_.get()}; }

  // Forward makes the logits and, if recording, the gradients; backward hands out what is there.
  Work work(Pass pass, at::TensorList taken, at::TensorList given) const override {
    if (pass == Pass::backward) return {};
    const bool adds_gradient = recording && head_.trainable();
    const double products = 1.0 + recording + adds_gradient, passes = 1.0 + 2 * adds_gradient;
    return {products * 2 * double(labels_.size(0)) * double(head_.numel()),
            Op::work(pass, taken, given).bytes + double(labels_.nbytes()) + bytes_of(kept()) +
                passes * double(head_.weight().nbytes())};
  }

 private:
  // Adds the chunk's sums of losses and of squared log-sum-exps; writes its dh and adds to the head's
  // gradient.
  void chunk_forward(const at::Tensor& h, const at::Tensor& labels, at::Tensor dh, double* loss, double* z) {
    const int64_t first = head_.piece().begin[0], vocab = head_.piece().end[0] - first;
    const at::Tensor weight = head_.weight().narrow(0, 0, vocab);  // without padding
    at::Tensor x = at::mm(h, weight.t());
    cap(x, options_.softcap);
    const at::Tensor valid = labels >= 0;
    const at::Tensor is_here = (labels >= first).logical_and_(labels < first + vocab).unsqueeze(1);
    const at::Tensor target = (labels - first).unsqueeze(1).masked_fill(~is_here, 0);
    // Where the vocabulary is too small to go round, the last ranks have none of it.
    at::Tensor lse =
        vocab > 0 ? x.logsumexp(1, /*keepdim=*/true) : at::full({h.size(0), 1}, -INFINITY, h.options());
    at::Tensor of_target = vocab > 0 ? x.gather(1, target) : at::zeros_like(lse);
    if (tp_.size() > 1) {
      const at::Tensor all = tp_.gather(at::stack({lse, of_target.masked_fill(~is_here, 0)}));
      lse = all.select(1, 0).logsumexp(0);
      of_target = all.select(1, 1).sum(0);
    }
    const at::Tensor token_loss = (lse - of_target).squeeze(1);
    *loss += token_loss.masked_fill(~valid, 0).sum(at::kDouble).item<double>();
    if (options_.z_loss > 0)
      *z += lse.squeeze(1).square().masked_fill(~valid, 0).sum(at::kDouble).item<double>();
    if (!recording) return;

    // d total / d x = normaliser * (softmax - one_hot + 2 z_loss lse softmax) on rows that have a target.
    const at::Tensor row = valid.to(x.scalar_type()).mul_(normaliser_).unsqueeze(1);
    at::Tensor dx = at::exp(x - lse);
    if (options_.z_loss > 0) dx.mul_(1 + 2 * options_.z_loss * lse);
    if (vocab > 0) dx.scatter_add_(1, target, is_here.to(lse.scalar_type()).neg_());
    dx.mul_(row);
    if (options_.softcap > 0) dx.mul_(1 - (x / options_.softcap).square());
    at::mm_out(dh, dx, weight);
    if (head_.trainable()) add_product(head_.grad().narrow(0, 0, vocab), dx.t(), h);
  }

  Param& head_;
  at::Tensor labels_;
  double normaliser_;
  CrossEntropyOptions options_;
  TensorParallel tp_;
  Saved dh_;
};

}  // namespace

CrossEntropyOutput cross_entropy(const at::Tensor& h, Param& head, const at::Tensor& labels,
                                 double normaliser, const CrossEntropyOptions& options,
                                 const TensorParallel& tp) {
  const auto outputs = apply(std::make_shared<CrossEntropy>(head, labels, normaliser, options, tp), {h});
  return {outputs[0], outputs[1]};
}

at::Tensor logits(const at::Tensor& h, Param& head, double softcap, const TensorParallel& tp) {
  at::Tensor x = at::mm(tp.enter(h).wait(), head.weight().t());
  cap(x, softcap);
  if (tp.size() == 1) return x;
  const at::Tensor all = tp.gather(x.t());  // [ranks, rows of the head, tokens]
  return all.flatten(0, 1).narrow(0, 0, head.shape()[0]).t().contiguous();
}

}  // namespace weft
