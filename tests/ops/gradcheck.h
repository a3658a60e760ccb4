// What every op must do, checked in one call: check_op() takes the op, and the same function written in plain
// ATen in another way, and compares outputs, gradients (autograd of the reference, finite differences), fp32,
// accumulation of weight gradients, and what is kept and released.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "weft/param/param_unit.h"

namespace weft::test {

using Tensors = std::vector<at::Tensor>;

/// Standard normals, fp64, the same on every run.
inline at::Tensor normals(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kDouble));
}

/// max|a - b| / max|b|; where b is (nearly) zero all over, the difference itself.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  const at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  const double scale = y.abs().max().item<double>();
  return (x - y).abs().max().item<double>() / (scale > 1e-6 ? scale : 1);
}

inline void expect_close(const std::string& what, const at::Tensor& a, const at::Tensor& b,
                         double tolerance) {
  EXPECT_LE(relative_error(a, b), tolerance) << what;  // a NaN fails too
}

inline void expect_close(const std::string& what, const Tensors& a, const Tensors& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) expect_close(what + " " + std::to_string(i), a[i], b[i], tolerance);
}

struct OpCase {
  Tensors inputs;  // fp64: differentiated; of other types (ids, labels): handed over as they are
  std::vector<ParamSpec> params;  // one unit, in this order, filled with standard normals
  std::function<Tensors(const Tensors& inputs, const std::vector<Param*>& params)> op;
  std::function<Tensors(const Tensors& inputs, const Tensors& weights)> reference;
  size_t differentiable = 1;   // so many of the outputs are; the others are only compared
  bool unit_gradient = false;  // a loss: backward must start from gradient 1
};

/// The op of a case on fresh leaves and a fresh unit of one dtype.
class Instance {
 public:
  Instance(const OpCase& c, at::ScalarType dtype) : case_(c), unit_("unit", dtype) {
    for (const ParamSpec& spec : c.params) params_.push_back(&unit_.add(spec));
    unit_.allocate();
    for (size_t i = 0; i < params_.size(); ++i)
      params_[i]->weight().copy_(normals(params_[i]->shape(), 1000 + i));
    for (const at::Tensor& input : c.inputs)
      inputs_.push_back(input.is_floating_point() ? input.detach().to(dtype).clone().requires_grad_()
                                                  : input);
  }

  const Tensors& inputs() const { return inputs_; }
  Tensors leaves() const {
    Tensors result;
    std::copy_if(inputs_.begin(), inputs_.end(), std::back_inserter(result),
                 [](const at::Tensor& x) { return x.is_floating_point(); });
    return result;
  }
  Tensors weights() const {
    return map([](Param* p) { return p->weight(); });
  }
  Tensors param_grads() const {
    return map([](Param* p) { return p->grad().clone(); });
  }
  Tensors input_grads() const {
    Tensors result;
    for (const at::Tensor& x : leaves()) result.push_back(x.grad());
    return result;
  }
  /// Of inputs and then weights.
  Tensors grads() const {
    Tensors result = input_grads();
    for (const at::Tensor& g : param_grads()) result.push_back(g);
    return result;
  }

  Tensors run() const { return case_.op(inputs_, params_); }
  Tensors run(const Tensors& inputs) const { return case_.op(inputs, params_); }

 private:
  template <class F>
  Tensors map(const F& f) const {
    Tensors result;
    for (Param* param : params_) result.push_back(f(param));
    return result;
  }

  const OpCase& case_;
  ParamUnit unit_;
  std::vector<Param*> params_;
  Tensors inputs_;
};

/// A scalar whose gradient with respect to each output is a fixed random tensor.
inline at::Tensor weighted_sum(const OpCase& c, const Tensors& outputs) {
  at::Tensor sum = at::zeros({}, outputs[0].options());
  for (size_t i = 0; i < c.differentiable; ++i) {
    if (c.unit_gradient)
      sum = sum + outputs[i];
    else
      sum = sum + (outputs[i] * normals(outputs[i].sizes(), 2000 + i).to(outputs[i].scalar_type())).sum();
  }
  return sum;
}

/// Central differences: along random directions, which see every element, and element by element (a sample).
inline void check_finite_differences(const OpCase& c, double tolerance = 1e-7) {
  constexpr double kStep = 1e-6;
  Instance instance(c, at::kDouble);
  weighted_sum(c, instance.run()).backward();
  const Tensors grads = instance.grads();
  const at::NoGradGuard no_grad;
  Tensors variables = instance.leaves();
  for (const at::Tensor& weight : instance.weights()) variables.push_back(weight);
  for (size_t i = 0; i < variables.size(); ++i) {
    at::Tensor x = variables[i];
    const double scale = std::max(1.0, grads[i].abs().max().item<double>());
    const auto slope = [&](const at::Tensor& direction) {
      const at::Tensor before = x.clone();
      x.add_(direction, kStep);
      const double up = weighted_sum(c, instance.run()).item<double>();
      x.copy_(before).sub_(direction, kStep);
      const double down = weighted_sum(c, instance.run()).item<double>();
      x.copy_(before);
      return (up - down) / (2 * kStep);
    };
    for (uint64_t seed : {1, 2, 3}) {
      const at::Tensor u = normals(x.sizes(), seed) / std::sqrt(double(x.numel()));
      EXPECT_NEAR(slope(u), (u * grads[i]).sum().item<double>(), tolerance * scale) << "variable " << i;
    }
    const int64_t stride = std::max<int64_t>(1, x.numel() / 16);
    for (int64_t e = 0; e < x.numel(); e += stride) {
      at::Tensor u = at::zeros_like(x, at::MemoryFormat::Contiguous);
      u.view(-1)[e].fill_(1);
      EXPECT_NEAR(slope(u), grads[i].reshape(-1)[e].item<double>(), tolerance * scale)
          << "variable " << i << ", element " << e;
    }
  }
}

/// Holders of a tensor's memory.
inline size_t holders(const at::Tensor& x) { return x.storage().use_count(); }

/// Activations are kept only while a backward may follow, and backward runs once.
inline void check_release(const OpCase& c) {
  Instance instance(c, at::kDouble);
  const auto expect_inputs_free = [&](const std::string& when) {
    for (const at::Tensor& x : instance.leaves()) EXPECT_EQ(holders(x), 1u) << "input kept " << when;
  };
  std::vector<size_t> without_graph;  // an output that is a view has its base for a second holder
  {
    const at::NoGradGuard no_grad;
    const Tensors outputs = instance.run();
    expect_inputs_free("with grad mode off");
    for (const at::Tensor& y : outputs) {
      EXPECT_FALSE(y.requires_grad());
      without_graph.push_back(holders(y));
    }
  }
  instance.run();
  expect_inputs_free("by a graph that was dropped");

  const Tensors outputs = instance.run();
  weighted_sum(c, outputs).backward();
  expect_inputs_free("after backward");
  for (size_t i = 0; i < outputs.size(); ++i)
    EXPECT_EQ(holders(outputs[i]), without_graph[i]) << "output kept";
  EXPECT_ANY_THROW(weighted_sum(c, outputs).backward()) << "backward ran twice";
}

/// Gradients that reach an op expanded (stride 0) and inputs that are not contiguous give what contiguous
/// ones do.
inline void check_strides(const OpCase& c) {
  Instance plain(c, at::kDouble), expanded(c, at::kDouble), strided(c, at::kDouble);
  const auto sum = [&](const Tensors& outputs, bool expand) {
    at::Tensor total = at::zeros({}, at::kDouble);
    for (size_t i = 0; i < c.differentiable; ++i)
      total = total + (expand ? outputs[i] : outputs[i] * at::ones_like(outputs[i])).sum();
    return total;
  };
  const Tensors plain_outputs = plain.run();
  sum(plain_outputs, false).backward();
  sum(expanded.run(), true).backward();
  expect_close("gradient from an expanded one", expanded.grads(), plain.grads(), 1e-13);

  Tensors inputs;
  for (const at::Tensor& x : strided.inputs())
    inputs.push_back(x.transpose(0, -1).contiguous().transpose(0, -1));
  const Tensors outputs = strided.run(inputs);
  expect_close("output of strided inputs", outputs, plain_outputs, 1e-13);
  sum(outputs, false).backward();
  expect_close("gradient of strided inputs", strided.grads(), plain.grads(), 1e-13);
}

inline void check_op(const std::string& name, const OpCase& c) {
  SCOPED_TRACE(name);

  // The reference, whose weights are ordinary leaves.
  Instance leaves(c, at::kDouble);
  Tensors weights, expected_grads;
  for (const at::Tensor& weight : leaves.weights()) weights.push_back(weight.clone().requires_grad_());
  const Tensors expected = c.reference(leaves.inputs(), weights);
  weighted_sum(c, expected).backward();
  for (const at::Tensor& x : leaves.leaves()) expected_grads.push_back(x.grad());
  for (const at::Tensor& w : weights) expected_grads.push_back(w.grad());

  Instance fp64(c, at::kDouble);
  const Tensors outputs = fp64.run();
  expect_close("output", outputs, expected, 1e-12);
  for (size_t i = 0; i < outputs.size(); ++i)
    EXPECT_EQ(outputs[i].requires_grad(), i < c.differentiable) << i;
  weighted_sum(c, outputs).backward();
  const Tensors grads = fp64.grads();
  expect_close("gradient", grads, expected_grads, 1e-11);

  // A second micro-batch adds to the weights' gradients; its inputs need none, and the weights' are not lost.
  Tensors detached;
  for (const at::Tensor& x : fp64.inputs()) detached.push_back(x.detach());
  weighted_sum(c, fp64.run(detached)).backward();
  const Tensors twice = fp64.param_grads();
  for (size_t i = 0; i < twice.size(); ++i)
    expect_close("accumulated gradient", twice[i], 2 * grads[grads.size() - twice.size() + i], 1e-14);

  Instance fp32(c, at::kFloat);
  const Tensors outputs32 = fp32.run();
  expect_close("fp32 output", outputs32, expected, 1e-5);
  weighted_sum(c, outputs32).backward();
  for (const at::Tensor& g : fp32.grads()) EXPECT_EQ(g.scalar_type(), at::kFloat);
  expect_close("fp32 gradient", fp32.grads(), expected_grads, 1e-5);

  check_finite_differences(c);
  check_release(c);
  check_strides(c);
}

}  // namespace weft::test
