#include "weft/ops/activation.h"

#include <cmath>
#include <numbers>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/ops/gradcheck.h"

namespace weft::test {
namespace {

at::Tensor reference(const at::Tensor& x, Activation f) {
  if (f == Activation::silu) return x / (1 + at::exp(-x));
  if (f == Activation::gelu) return 0.5 * x * (1 + at::erf(x / std::numbers::sqrt2));
  return 0.5 * x * (1 + at::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x.pow(3))));
}

constexpr Activation kAll[] = {Activation::silu, Activation::gelu, Activation::gelu_tanh};

OpCase gated_case(int64_t tokens, int64_t ffn_dim, Activation f) {
  OpCase c;
  c.inputs = {normals({tokens, 2 * ffn_dim}, 1) * 2};
  c.op = [=](const Tensors& x, const std::vector<Param*>&) { return Tensors{gated(x[0], f)}; };
  c.reference = [=](const Tensors& x, const Tensors&) {
    const auto halves = x[0].chunk(2, 1);
    return Tensors{reference(halves[0], f) * halves[1]};
  };
  return c;
}

OpCase plain_case(int64_t tokens, int64_t ffn_dim, Activation f) {
  OpCase c;
  c.inputs = {normals({tokens, ffn_dim}, 1) * 2};
  c.op = [=](const Tensors& x, const std::vector<Param*>&) { return Tensors{activate(x[0], f)}; };
  c.reference = [=](const Tensors& x, const Tensors&) { return Tensors{reference(x[0], f)}; };
  return c;
}

TEST(Activation, MatchesReference) {
  for (const Activation f : kAll) {
    check_op("gated", gated_case(13, 7, f));
    check_op("gated, one token", gated_case(1, 1, f));
    check_op("gated, 600 tokens", gated_case(600, 3, f));
    check_op("plain", plain_case(13, 7, f));
    check_op("plain, one token", plain_case(1, 1, f));
  }
}

TEST(Activation, FarValuesAreFinite) {
  for (const Activation f : kAll) {
    at::Tensor x =
        at::tensor({-200.0, 200.0, 3.0, 3.0}).view({1, 4}).requires_grad_();  // gates -200 and 200, up 3
    const at::Tensor y = gated(x, f);
    y.sum().backward();
    expect_close("value", y, at::tensor({0.0, 600.0}).view({1, 2}), 1e-12);
    expect_close("gradient", x.grad(), at::tensor({0.0, 3.0, 0.0, 200.0}).view({1, 4}), 1e-12);
  }
}

}  // namespace
}  // namespace weft::test
