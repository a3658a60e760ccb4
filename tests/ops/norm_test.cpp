#include "weft/ops/norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/ops/gradcheck.h"

namespace weft::test {
namespace {

at::Tensor reference_norm(const at::Tensor& x, const at::Tensor& gain, const NormOptions& options) {
  const at::Tensor mean_square = (x * x).sum(-1, true) / x.size(-1);
  return x / at::sqrt(mean_square + options.eps) * (options.unit_offset ? 1 + gain : gain);
}

OpCase rms_case(int64_t tokens, int64_t dim, const NormOptions& options) {
  OpCase c;
  c.inputs = {normals({tokens, dim}, 1)};
  c.params = {{"gain", {dim}, {}, {}}};
  c.op = [=](const Tensors& x, const std::vector<Param*>& p) {
    return Tensors{rms_norm(x[0], *p[0], options).y};
  };
  c.reference = [=](const Tensors& x, const Tensors& w) {
    return Tensors{reference_norm(x[0], w[0], options)};
  };
  return c;
}

// Both outputs are used, as in a block.
OpCase residual_case(int64_t tokens, int64_t dim, const NormOptions& options) {
  OpCase c = rms_case(tokens, dim, options);
  c.inputs.push_back(normals({tokens, dim}, 2));
  c.differentiable = 2;
  c.op = [=](const Tensors& x, const std::vector<Param*>& p) {
    const NormOutput out = rms_norm(x[0], *p[0], options, x[1]);
    return Tensors{out.y, out.residual};
  };
  c.reference = [=](const Tensors& x, const Tensors& w) {
    return Tensors{reference_norm(x[0] + x[1], w[0], options), x[0] + x[1]};
  };
  return c;
}

OpCase layer_case(int64_t tokens, int64_t dim, const NormOptions& options, bool with_residual) {
  OpCase c;
  c.inputs = {normals({tokens, dim}, 1) + 3};  // a mean that matters
  c.params = {{"gain", {dim}, {}, {}}, {"bias", {dim}, {}, {}}};
  if (with_residual) c.inputs.push_back(normals({tokens, dim}, 2)), c.differentiable = 2;
  c.op = [=](const Tensors& x, const std::vector<Param*>& p) {
    const NormOutput out = layer_norm(x[0], *p[0], *p[1], options, with_residual ? x[1] : at::Tensor());
    return with_residual ? Tensors{out.y, out.residual} : Tensors{out.y};
  };
  c.reference = [=](const Tensors& x, const Tensors& w) {
    const at::Tensor sum = with_residual ? x[0] + x[1] : x[0];
    const at::Tensor gain = options.unit_offset ? 1 + w[0] : w[0];
    const at::Tensor y = at::layer_norm(sum, {dim}, gain, w[1], options.eps);
    return with_residual ? Tensors{y, sum} : Tensors{y};
  };
  return c;
}

// One gain over all heads, as in OLMo-2.
OpCase all_heads_case(int64_t tokens, int64_t q_heads, int64_t kv_heads, int64_t head_dim) {
  OpCase c;
  c.inputs = {normals({tokens, q_heads + 2 * kv_heads, head_dim}, 1)};
  c.params = {{"q_gain", {q_heads * head_dim}, {}, {}}, {"k_gain", {kv_heads * head_dim}, {}, {}}};
  c.op = [=](const Tensors& x, const std::vector<Param*>& p) {
    return Tensors{qk_norm(x[0], q_heads, kv_heads, *p[0], *p[1], {1e-5, false})};
  };
  c.reference = [=](const Tensors& x, const Tensors& w) {
    const at::Tensor flat = x[0].reshape({tokens, -1});
    const auto parts =
        flat.split_with_sizes({q_heads * head_dim, kv_heads * head_dim, kv_heads * head_dim}, 1);
    const at::Tensor q = reference_norm(parts[0], w[0], {1e-5, false}),
                     k = reference_norm(parts[1], w[1], {1e-5, false});
    return Tensors{at::cat({q, k, parts[2]}, 1).view({tokens, -1, head_dim})};
  };
  return c;
}

OpCase qk_case(int64_t tokens, int64_t q_heads, int64_t kv_heads, int64_t head_dim,
               const NormOptions& options) {
  OpCase c;
  c.inputs = {normals({tokens, q_heads + 2 * kv_heads, head_dim}, 1)};
  c.params = {{"q_gain", {head_dim}, {}, {}}, {"k_gain", {head_dim}, {}, {}}};
  c.op = [=](const Tensors& x, const std::vector<Param*>& p) {
    return Tensors{qk_norm(x[0], q_heads, kv_heads, *p[0], *p[1], options)};
  };
  c.reference = [=](const Tensors& x, const Tensors& w) {
    const auto parts = x[0].split_with_sizes({q_heads, kv_heads, kv_heads}, 1);
    return Tensors{at::cat(
        {reference_norm(parts[0], w[0], options), reference_norm(parts[1], w[1], options), parts[2]}, 1)};
  };
  return c;
}

TEST(RmsNorm, MatchesReference) {
  for (bool unit_offset : {false, true}) {
    check_op("small", rms_case(13, 7, {1e-5, unit_offset}));
    check_op("one token", rms_case(1, 16, {1e-6, unit_offset}));
    check_op("dim 1",
             rms_case(5, 1, {0.5, unit_offset}));  // with a tiny eps the gradient is all cancellation
    check_op("600 tokens", rms_case(600, 3, {1e-2, unit_offset}));
    check_op("with residual", residual_case(13, 7, {1e-5, unit_offset}));
    check_op("with residual, one token", residual_case(1, 5, {1e-5, unit_offset}));
  }
}

TEST(LayerNorm, MatchesReference) {
  for (bool unit_offset : {false, true})
    for (bool with_residual : {false, true}) {
      check_op("small", layer_case(13, 7, {1e-5, unit_offset}, with_residual));
      check_op("one token", layer_case(1, 16, {1e-6, unit_offset}, with_residual));
      check_op("dim 2", layer_case(5, 2, {0.5, unit_offset}, with_residual));
      check_op("600 tokens", layer_case(600, 3, {1e-2, unit_offset}, with_residual));
    }
}

TEST(RmsNorm, WithoutResidualHandsOnItsInput) {
  ParamUnit unit("unit", at::kDouble);
  Param& gain = unit.add({"gain", {3}, {}, {}});
  unit.allocate();
  const at::Tensor x = normals({2, 3}, 1);
  EXPECT_TRUE(rms_norm(x, gain, {}).residual.is_same(x));
}

TEST(RmsNorm, EitherOutputMayGoUnused) {
  ParamUnit unit("unit", at::kDouble);
  Param& gain = unit.add({"gain", {3}, {}, {}});
  unit.allocate();
  gain.weight().copy_(normals({3}, 1));
  const at::Tensor dy = normals({4, 3}, 2);
  for (bool use_y : {true, false}) {
    at::Tensor x = normals({4, 3}, 3).requires_grad_(), residual = normals({4, 3}, 4).requires_grad_();
    at::Tensor sum = (x + residual).detach().requires_grad_();
    const NormOutput out = rms_norm(x, gain, {}, residual);
    (use_y ? out.y : out.residual).backward(dy);
    (use_y ? reference_norm(sum, gain.weight(), {}) : sum * 1).backward(dy);
    expect_close("x", x.grad(), sum.grad(), 1e-12);
    expect_close("residual", residual.grad(), sum.grad(), 1e-12);
  }
}

TEST(RmsNorm, ZeroRowIsFinite) {
  ParamUnit unit("unit", at::kFloat);
  Param& gain = unit.add({"gain", {8}, {0, 1}, {}});
  unit.allocate();
  unit.initialise(1);
  at::Tensor x = at::zeros({1, 8}, at::kFloat).requires_grad_();
  const at::Tensor y = rms_norm(x, gain, {}).y;
  y.sum().backward();
  EXPECT_EQ(y.abs().max().item<double>(), 0);
  EXPECT_NEAR(x.grad()[0][0].item<double>(), 1 / std::sqrt(1e-5), 1e-2);
}

TEST(QkNorm, MatchesReference) {
  for (bool unit_offset : {false, true}) {
    check_op("GQA", qk_case(7, 4, 2, 6, {1e-5, unit_offset}));
    check_op("MQA", qk_case(11, 5, 1, 2, {1e-3, unit_offset}));
    check_op("one token, one head", qk_case(1, 1, 1, 2, {1e-5, unit_offset}));
  }
}

TEST(QkNorm, OverAllHeadsMatchesReference) {
  check_op("GQA", all_heads_case(7, 4, 2, 6));
  check_op("MQA", all_heads_case(3, 5, 1, 2));
}

}  // namespace
}  // namespace weft::test
