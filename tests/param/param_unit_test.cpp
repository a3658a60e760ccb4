#include "weft/param/param_unit.h"

#include <cmath>
#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weft/param/param.h"

namespace weft {
namespace {

ParamSpec spec(const std::string& name, std::vector<int64_t> shape, Init init = {}) {
  return {name, std::move(shape), init, {}};
}

// The initial values of one param in a unit of its own.
at::Tensor initial(const std::string& name, std::vector<int64_t> shape, Init init, uint64_t seed,
                   at::ScalarType dtype = at::kDouble) {
  ParamUnit unit("unit", dtype);
  Param& param = unit.add(spec(name, std::move(shape), init));
  unit.allocate();
  unit.initialise(seed);
  return param.weight().clone();
}

TEST(ParamUnit, ParamsLieSideBySideInOrder) {
  ParamUnit unit("layers.0", at::kFloat);
  const Param& norm = unit.add(spec("norm", {7}));
  const Param& q = unit.add(spec("q", {6, 5}));
  const Param& k = unit.add(spec("k", {2, 5}));
  unit.allocate();
  EXPECT_EQ(unit.name(), "layers.0");
  EXPECT_EQ(unit.params().size(), 3u);
  EXPECT_EQ(norm.offset(), 0);
  EXPECT_EQ(q.offset(), 7);
  EXPECT_EQ(k.offset(), 37);
  EXPECT_EQ(unit.numel(), 47);
  EXPECT_EQ(unit.weights().numel(), 64);  // up to a multiple of 64
  EXPECT_EQ(unit.grads().numel(), 64);
  EXPECT_EQ(&k.unit(), &unit);

  unit.weights().copy_(at::arange(64));
  unit.grads().copy_(at::arange(64) + 1000);
  EXPECT_EQ(q.weight().sizes(), (std::vector<int64_t>{6, 5}));
  EXPECT_EQ(q.weight()[0][0].item<float>(), 7);
  EXPECT_EQ(q.weight()[5][4].item<float>(), 36);
  EXPECT_EQ(k.grad()[1][4].item<float>(), 1046);
  k.weight()[0][0] = -1;  // a view, not a copy
  EXPECT_EQ(unit.weights()[37].item<float>(), -1);
}

TEST(ParamUnit, ReferencesStayValidAsParamsAreAdded) {
  ParamUnit unit("unit", at::kFloat);
  const Param& first = unit.add(spec("first", {3}));
  for (int i = 0; i < 100; ++i) unit.add(spec(fmt::format("p{}", i), {1}));
  EXPECT_EQ(&first, unit.params().front().get());
  EXPECT_EQ(first.name(), "first");
}

TEST(ParamUnit, AFullUnitHasNoPadding) {
  ParamUnit unit("unit", at::kDouble);
  unit.add(spec("w", {2, 64}));
  unit.allocate();
  EXPECT_EQ(unit.weights().numel(), 128);
}

TEST(ParamUnit, NoParamCanFollowTheAllocation) {
  ParamUnit unit("unit", at::kFloat);
  unit.add(spec("a", {2}));
  unit.allocate();
  EXPECT_THROW(unit.add(spec("b", {2})), std::logic_error);
}

TEST(Fused, SideBySideIsOneMatrix) {
  ParamUnit unit("unit", at::kDouble);
  Param& norm = unit.add(spec("norm", {3}));
  Param& q = unit.add(spec("q", {4, 5}));
  Param& k = unit.add(spec("k", {2, 5}));
  Param& v = unit.add(spec("v", {2, 5}));
  Param& q_bias = unit.add(spec("q.bias", {4}));
  Param& k_bias = unit.add(spec("k.bias", {2}));
  unit.allocate();
  unit.weights().copy_(at::arange(64));
  unit.grads().copy_(-at::arange(64));
  EXPECT_TRUE(at::equal(fused_weight({&q, &k, &v}), at::cat({q.weight(), k.weight(), v.weight()})));
  EXPECT_TRUE(at::equal(fused_grad({&k, &v}), at::cat({k.grad(), v.grad()})));
  EXPECT_TRUE(at::equal(fused_weight({&q_bias, &k_bias}), at::cat({q_bias.weight(), k_bias.weight()})));
  EXPECT_TRUE(at::equal(fused_weight({&norm}), norm.weight()));
  fused_grad({&q, &k}).add_(1000);
  EXPECT_EQ(k.grad()[1][4].item<double>(), -32 + 1000);
  EXPECT_EQ(v.grad()[0][0].item<double>(), -33);
  EXPECT_THROW(fused_weight({&q, &v}), std::logic_error);  // k lies between
  EXPECT_THROW(fused_weight({&k, &q}), std::logic_error);
}

TEST(Initialise, PaddingStaysZero) {
  ParamUnit unit("unit", at::kFloat);
  unit.add(spec("a", {3, 7}, {0.02, 0}));
  unit.add(spec("b", {5}, {0, 1}));
  unit.allocate();
  unit.initialise(1);
  EXPECT_EQ(unit.weights().narrow(0, 26, 38).abs().max().item<double>(), 0);
  EXPECT_EQ(unit.grads().abs().max().item<double>(), 0);
  EXPECT_EQ((unit.weights().narrow(0, 0, 26) == 0).sum().item<int64_t>(), 0);
}

TEST(Initialise, ConstantAndZero) {
  EXPECT_TRUE(at::equal(initial("ones", {5}, {0, 1}, 1), at::ones({5}, at::kDouble)));
  EXPECT_TRUE(at::equal(initial("bias", {5}, {}, 1), at::zeros({5}, at::kDouble)));
}

// From an independent implementation (Python: Philox4x32-10, Box-Muller and the xxhash package). A change
// here changes every new run.
TEST(Initialise, GoldenValues) {
  const at::Tensor w = initial("model.layers.0.mlp.up_proj.weight", {5, 3}, {0.02, 0}, 42).view(-1);
  const double expected[] = {-0.01383078524413645, -0.05149792584384918, -0.0006321360285123877,
                             0.03543740052759734, 0.041848593742364736};
  for (int64_t i = 0; i < 5; ++i) EXPECT_NEAR(w[i].item<double>(), expected[i], 1e-16);
}

TEST(Initialise, DependsOnSeedNameAndIndexOnly) {
  const Init init{0.02, 0};
  const at::Tensor alone = initial("w", {5, 3}, init, 42);
  ParamUnit unit("another name", at::kDouble);
  unit.add(spec("before", {7}, init));
  Param& w = unit.add(spec("w", {5, 3}, init));
  Param& after = unit.add(spec("after", {5, 3}, init));
  unit.allocate();
  unit.initialise(42);
  EXPECT_TRUE(at::equal(w.weight(), alone));
  EXPECT_FALSE(at::equal(after.weight(), alone));
  EXPECT_FALSE(at::equal(initial("w", {5, 3}, init, 43), alone));
  // Element i is the same for any shape: an odd number, fewer rows, one.
  EXPECT_TRUE(at::equal(initial("w", {15}, init, 42), alone.view(-1)));
  EXPECT_TRUE(at::equal(initial("w", {2, 3}, init, 42), alone.narrow(0, 0, 2)));
  EXPECT_TRUE(at::equal(initial("w", {1}, init, 42), alone.view(-1).narrow(0, 0, 1)));
}

TEST(Initialise, Fp32IsFp64Rounded) {
  const Init init{0.02, 0};
  EXPECT_TRUE(
      at::equal(initial("w", {101}, init, 42, at::kFloat), initial("w", {101}, init, 42).to(at::kFloat)));
}

TEST(Initialise, IsNormalAndNamesAreIndependent) {
  const int64_t n = 200001;
  const double std = 0.02, root = std::sqrt(double(n));
  const at::Tensor a = initial("a", {n}, {std, 0}, 42) / std, b = initial("b", {n}, {std, 0}, 42) / std;
  EXPECT_NEAR(a.mean().item<double>(), 0, 4 / root);
  EXPECT_NEAR(a.square().mean().item<double>(), 1, 4 * std::sqrt(2.0) / root);
  EXPECT_NEAR(a.pow(4).mean().item<double>(), 3, 4 * std::sqrt(96.0) / root);
  EXPECT_NEAR((a.abs() > 1.959964).to(at::kDouble).mean().item<double>(), 0.05,
              4 * std::sqrt(0.05 * 0.95) / root);
  EXPECT_NEAR((a * b).mean().item<double>(), 0, 4 / root);
  EXPECT_NEAR((a.narrow(0, 0, n - 1) * a.narrow(0, 1, n - 1)).mean().item<double>(), 0, 4 / root);
}

TEST(Initialise, HasTheSameBitsForAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = initial("w", {40001}, {0.02, 0}, 42);
  at::set_num_threads(2);
  const at::Tensor two = initial("w", {40001}, {0.02, 0}, 42);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one, two));
}

}  // namespace
}  // namespace weft
