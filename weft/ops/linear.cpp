#include "weft/ops/linear.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "weft/ops/function.h"

namespace weft {
namespace {

class Linear : public Op {
 public:
  Linear(std::vector<Param*> weights, std::vector<Param*> biases)
      : weights_(std::move(weights)), biases_(std::move(biases)) {}

  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    const at::Tensor& x = inputs[0];
    if (recording) x_ = Saved(x);
    const at::Tensor weight = fused_weight(weights_).t();
    return {biases_.empty() ? at::mm(x, weight) : at::addmm(fused_weight(biases_), x, weight)};
  }

  std::vector<at::Tensor> backward(at::TensorList grads) override {
    const at::Tensor dy = grads[0].contiguous();
    for_trainable(weights_, dy,
                  [&](at::Tensor grad, const at::Tensor& d) { add_product(grad, d.t(), x_.get()); });
    for_trainable(biases_, dy, [](at::Tensor grad, const at::Tensor& d) { grad.add_(d.sum(0)); });
    return {at::mm(dy, fused_weight(weights_))};
  }

  const char* name() const override { return "linear"; }
  double kept_bytes() const override { return x_.nbytes(); }

  // Forward is one product with the weight. Backward is two, of which one adds to the gradients of the
  // trainable weights.
  Work work(Pass pass, at::TensorList taken, at::TensorList given) const override {
    double weights = 0, gradients = 0;  // elements
    for (const Param* param : weights_) {
      weights += double(param->numel());
      if (pass == Pass::backward && param->trainable()) gradients += double(param->numel());
    }
    return {2 * double(taken[0].size(0)) * (weights + gradients),
            Op::work(pass, taken, given).bytes + double(taken[0].element_size()) * (weights + 2 * gradients)};
  }

 private:
  // Calls add(gradient, the columns of dy that belong to it): once for all params, or for each that is
  // trainable.
  template <class Add>
  static void for_trainable(const std::vector<Param*>& params, const at::Tensor& dy, Add add) {
    if (params.empty()) return;
    if (std::ranges::all_of(params, &Param::trainable)) return add(fused_grad(params), dy);
    int64_t column = 0;
    for (const Param* param : params) {
      const int64_t width = param->shape()[0];
      if (param->trainable()) add(param->grad(), dy.narrow(1, column, width));
      column += width;
    }
  }

  std::vector<Param*> weights_, biases_;
  Saved x_;
};

// table_grad[ids[t]] += scale * dy[t], in token order for each element, so the same sum for any number of
// threads.
void add_rows(at::Tensor table_grad, const at::Tensor& ids, const at::Tensor& dy, double scale) {
  const int64_t tokens = ids.numel(), dim = dy.size(1);
  const int64_t* id = ids.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES(dy.scalar_type(), "embedding_backward", [&] {
    const scalar_t* in = dy.const_data_ptr<scalar_t>();
    const auto add = [&](auto* out) {
      at::parallel_for(0, dim, 64, [&](int64_t begin, int64_t end) {
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t j = begin; j < end; ++j) out[id[t] * dim + j] += scalar_t(scale) * in[t * dim + j];
      });
    };
    if (table_grad.scalar_type() == at::kDouble)
      add(table_grad.data_ptr<double>());
    else
      add(table_grad.data_ptr<float>());
  });
}

class Embedding : public Op {
 public:
  Embedding(Param& table, double multiplier) : table_(table), multiplier_(multiplier) {}

  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    if (recording) ids_ = Saved(inputs[0]);
    at::Tensor rows = at::index_select(table_.weight(), 0, inputs[0]);
    return {multiplier_ == 1 ? rows : rows.mul_(multiplier_)};
  }

  std::vector<at::Tensor> backward(at::TensorList grads) override {
    if (table_.trainable()) add_rows(table_.grad(), ids_.get(), grads[0].contiguous(), multiplier_);
    return {at::Tensor()};
  }

  const char* name() const override { return "embedding"; }
  double kept_bytes() const override { return ids_.nbytes(); }

  // Forward reads the rows, backward reads and writes those of the gradient.
  Work work(Pass pass, at::TensorList taken, at::TensorList given) const override {
    const double rows = pass == Pass::forward ? bytes_of(given) : 2 * bytes_of(taken);
    return {0, Op::work(pass, taken, given).bytes + rows};
  }

 private:
  Param& table_;
  double multiplier_;
  Saved ids_;
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const std::vector<Param*>& weights,
                  const std::vector<Param*>& biases) {
  return apply(std::make_shared<Linear>(weights, biases), {x})[0];
}

at::Tensor embedding(const at::Tensor& ids, Param& table, double multiplier) {
  return apply(std::make_shared<Embedding>(table, multiplier), {ids.contiguous()})[0];
}

}  // namespace weft
