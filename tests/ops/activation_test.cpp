#include "weft/ops/activation.h"

#include <cmath>
#include <numbers>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/ops/gradcheck.h"

namespace weft::test {
namespace {

OpCase gated_case(int64_t tokens, int64_t ffn_dim, Gate gate) {
  OpCase c;
  c.inputs = {normals({tokens, 2 * ffn_dim}, 1) * 2};
  c.op = [=](const Tensors& x, const std::vector<Param*>&) { return Tensors{gated(x[0], gate)}; };
  c.reference = [=](const Tensors& x, const Tensors&) {
    const auto halves = x[0].chunk(2, 1);
    const at::Tensor &g = halves[0], &up = halves[1];
    if (gate == Gate::silu) return Tensors{g / (1 + at::exp(-g)) * up};
    const at::Tensor inner = std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g.pow(3));
    return Tensors{0.5 * g * (1 + at::tanh(inner)) * up};
  };
  return c;
}

TEST(Gated, MatchesReference) {
  for (Gate gate : {Gate::silu, Gate::gelu_tanh}) {
    check_op("small", gated_case(13, 7, gate));
    check_op("one token", gated_case(1, 1, gate));
    check_op("600 tokens", gated_case(600, 3, gate));
  }
}

TEST(Gated, FarValuesAreFinite) {
  for (Gate gate : {Gate::silu, Gate::gelu_tanh}) {
    at::Tensor x =
        at::tensor({-200.0, 200.0, 3.0, 3.0}).view({1, 4}).requires_grad_();  // gates -200 and 200, up 3
    const at::Tensor y = gated(x, gate);
    y.sum().backward();
    expect_close("value", y, at::tensor({0.0, 600.0}).view({1, 2}), 1e-12);
    expect_close("gradient", x.grad(), at::tensor({0.0, 3.0, 0.0, 200.0}).view({1, 4}), 1e-12);
  }
}

}  // namespace
}  // namespace weft::test
