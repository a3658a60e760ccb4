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
  enum class Split { column, row };  // of one rank they are the same

  Linear(std::vector<Param*> weights, std::vector<Param*> biases, Split split, const TensorParallel& tp)
      : weights_(std::move(weights)), biases_(std::move(biases)), split_(split), tp_(tp) {}

  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    if (recording && needs_x()) x_ = Saved(inputs[0]);
    const at::Tensor& x = inputs[0];
    const at::Tensor weight = fused_weight(weights_).t();
    if (tp_.size() == 1)
      return {biases_.empty() ? at::mm(x, weight) : at::addmm(fused_weight(biases_), x, weight)};
    at::Tensor y = split_ == Split::row ? tp_.mm_leave(x, weight).wait() : tp_.enter_mm(x, weight).second;
    return {biases_.empty() ? y : y.add_(fused_weight(biases_))};
  }

  std::vector<at::Tensor> backward(at::TensorList grads) override {
    const at::Tensor own_dy = grads[0].contiguous();
    for_trainable(biases_, own_dy, [](at::Tensor grad, const at::Tensor& d) { grad.add_(d.sum(0)); });
    if (split_ == Split::row) {
      const auto [dy, dx] = tp_.enter_mm(own_dy, fused_weight(weights_));
      add_weight_gradients(dy, x_.get());
      return {dx};
    }
    // x comes back while dx is computed, and dx leaves while x is used.
    Arriving x = needs_x() ? tp_.enter(x_.get()) : Arriving{};
    Arriving dx = tp_.mm_leave(own_dy, fused_weight(weights_));
    add_weight_gradients(own_dy, x.wait());
    return {dx.wait()};
  }

  const char* name() const override { return "linear"; }
  std::vector<at::Tensor> kept() const override { return {x_.get()}; }

  // Forward is one product with the weight, for all tokens. Backward is two, of which one adds to the
  // gradients of the trainable weights.
  Work work(Pass pass, at::TensorList taken, at::TensorList given) const override {
    double weights = 0, gradients = 0;  // elements
    for (const Param* param : weights_) {
      weights += double(param->numel());
      if (pass == Pass::backward && param->trainable()) gradients += double(param->numel());
    }
    const bool is_outside = (split_ == Split::column) == (pass == Pass::forward);  // that which is taken
    const int64_t tokens = taken[0].size(0) * (tp_.sequence && is_outside ? tp_.size() : 1);
    return {2 * double(tokens) * (weights + gradients),
            Op::work(pass, taken, given).bytes + double(taken[0].element_size()) * (weights + 2 * gradients)};
  }

 private:
  bool needs_x() const { return std::ranges::any_of(weights_, &Param::trainable); }

  void add_weight_gradients(const at::Tensor& dy, const at::Tensor& x) {
    for_trainable(weights_, dy, [&](at::Tensor grad, const at::Tensor& d) { add_product(grad, d.t(), x); });
  }

  // Calls add(gradient, the columns of dy that belong to it): once for all params, or for each that is
  // trainable.
  template <class Add>
  static void for_trainable(const std::vector<Param*>& params, const at::Tensor& dy, Add add) {
    if (params.empty()) return;
    if (std::ranges::all_of(params, &Param::trainable)) return add(fused_grad(params), dy);
    int64_t column = 0;
    for (const Param* param : params) {
      const int64_t width = param->local_shape()[0];
      if (param->trainable()) add(param->grad(), dy.narrow(1, column, width));
      column += width;
    }
  }

  std::vector<Param*> weights_, biases_;
  Split split_;
  TensorParallel tp_;
  Saved x_;
};

// table_grad[ids[t]] += scale * dy[t] where there is such a row, in token order for each element, so the same
// sum for any number of threads.
void add_rows(at::Tensor table_grad, const at::Tensor& ids, const at::Tensor& dy, double scale) {
  const int64_t tokens = ids.numel(), dim = dy.size(1), rows = table_grad.size(0);
  const int64_t* id = ids.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES(dy.scalar_type(), "embedding_backward", [&] {
    const scalar_t* in = dy.const_data_ptr<scalar_t>();
    const auto add = [&](auto* out) {
      at::parallel_for(0, dim, 64, [&](int64_t begin, int64_t end) {
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t j = begin; id[t] >= 0 && id[t] < rows && j < end; ++j)
            out[id[t] * dim + j] += scalar_t(scale) * in[t * dim + j];
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
  Embedding(Param& table, double multiplier, const TensorParallel& tp)
      : table_(table), multiplier_(multiplier), tp_(tp) {}

  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    // Counted from this rank's first row.
    const at::Tensor ids = tp_.size() == 1 ? inputs[0] : inputs[0] - table_.piece().begin[0];
    if (recording) ids_ = Saved(ids);
    const at::Tensor weight = table_.weight();
    if (tp_.size() == 1) {
      at::Tensor rows = at::index_select(weight, 0, ids);
      return {multiplier_ == 1 ? rows : rows.mul_(multiplier_)};
    }
    const at::Tensor elsewhere = (ids < 0).logical_or_(ids >= weight.size(0));
    at::Tensor rows = at::index_select(weight, 0, ids.clamp(0, weight.size(0) - 1));
    rows.masked_fill_(elsewhere.unsqueeze(1), 0);
    return {tp_.leave(multiplier_ == 1 ? rows : rows.mul_(multiplier_)).wait()};
  }

  std::vector<at::Tensor> backward(at::TensorList grads) override {
    if (table_.trainable())
      add_rows(table_.grad(), ids_.get(), tp_.enter(grads[0]).wait().contiguous(), multiplier_);
    return {at::Tensor()};
  }

  const char* name() const override { return "embedding"; }
  std::vector<at::Tensor> kept() const override { return {ids_.get()}; }

  // Forward reads the rows, backward reads and writes those of the gradient.
  Work work(Pass pass, at::TensorList taken, at::TensorList given) const override {
    const double rows = pass == Pass::forward ? bytes_of(given) : 2 * bytes_of(taken);
    return {0, Op::work(pass, taken, given).bytes + rows};
  }

 private:
  Param& table_;
  double multiplier_;
  TensorParallel tp_;
  Saved ids_;
};

}  // namespace

at::Tensor column_linear(const at::Tensor& x, const std::vector<Param*>& weights,
                         const std::vector<Param*>& biases, const TensorParallel& tp) {
  return apply(std::make_shared<Linear>(weights, biases, Linear::Split::column, tp), {x})[0];
}

at::Tensor row_linear(const at::Tensor& x, const std::vector<Param*>& weights,
                      const std::vector<Param*>& biases, const TensorParallel& tp) {
  return apply(std::make_shared<Linear>(weights, biases, Linear::Split::row, tp), {x})[0];
}

at::Tensor embedding(const at::Tensor& ids, Param& table, double multiplier, const TensorParallel& tp) {
  return apply(std::make_shared<Embedding>(table, multiplier, tp), {ids.contiguous()})[0];
}

}  // namespace weft
