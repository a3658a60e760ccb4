#include "weft/ops/cross_entropy.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/ops/gradcheck.h"

namespace weft::test {
namespace {

constexpr int64_t kNone = kIgnoredLabel;

// Through one-hot targets and log_softmax, all logits at once. {total, loss}
OpCase loss_case(const std::vector<int64_t>& labels, int64_t vocab, int64_t dim,
                 const CrossEntropyOptions& options) {
  const double normaliser = 1.0 / 7;
  OpCase c;
  c.inputs = {normals({int64_t(labels.size()), dim}, 1), at::tensor(labels, at::kLong)};
  c.params = {{"head", {vocab, dim}, {}, {}}};
  c.unit_gradient = true;
  c.op = [=](const Tensors& x, const std::vector<Param*>& p) {
    const CrossEntropyOutput out = cross_entropy(x[0], *p[0], x[1], normaliser, options);
    return Tensors{out.total, out.loss};
  };
  c.reference = [=](const Tensors& x, const Tensors& w) {
    at::Tensor z = at::linear(x[0], w[0]);
    if (options.softcap > 0) z = options.softcap * at::tanh(z / options.softcap);
    const at::Tensor valid = (x[1] >= 0).to(z.scalar_type());
    const at::Tensor target = at::one_hot(x[1].clamp_min(0), vocab) * valid.unsqueeze(1);
    const at::Tensor loss = -(target * at::log_softmax(z, 1)).sum() * normaliser;
    const at::Tensor lse = at::log(at::exp(z).sum(1));
    return Tensors{loss + normaliser * options.z_loss * (valid * lse * lse).sum(), loss};
  };
  return c;
}

const std::vector<int64_t> kLabels = {3, kNone, 0, 16, 5, 5, kNone, kNone, 9, 1, 3, 12, -1};

TEST(CrossEntropy, MatchesReference) {
  check_op("plain", loss_case(kLabels, 17, 7, {}));
  check_op("softcap", loss_case(kLabels, 17, 7, {.softcap = 2}));
  check_op("z-loss", loss_case(kLabels, 17, 7, {.z_loss = 0.03}));
  check_op("all of it, in chunks", loss_case(kLabels, 17, 7, {.softcap = 2, .z_loss = 0.03, .chunk = 5}));
  check_op("one token", loss_case({1}, 3, 5, {.z_loss = 0.1}));
  check_op("dim 1", loss_case({1, 0, kNone}, 3, 1, {.softcap = 3}));
  check_op("vocab 1", loss_case({0, 0, kNone}, 1, 4, {.z_loss = 0.1}));
}

TEST(CrossEntropy, AllIgnoredIsZeroWithZeroGradients) {
  const OpCase c = loss_case({kNone, kNone, kNone}, 5, 4, {.softcap = 2, .z_loss = 0.1, .chunk = 2});
  check_op("all ignored", c);
  Instance instance(c, at::kFloat);
  const Tensors outputs = instance.run();
  outputs[0].backward();
  EXPECT_EQ(outputs[0].item<double>(), 0);
  EXPECT_EQ(outputs[1].item<double>(), 0);
  for (const at::Tensor& g : instance.grads()) EXPECT_EQ(g.abs().max().item<double>(), 0);
}

TEST(CrossEntropy, ChunkChangesNothing) {
  const auto results = [](int64_t chunk) {
    const OpCase c = loss_case(kLabels, 17, 7, {.softcap = 2, .z_loss = 0.03, .chunk = chunk});
    Instance instance(c, at::kDouble);
    Tensors all = instance.run();
    all[0].backward();
    for (const at::Tensor& g : instance.grads()) all.push_back(g);
    return all;
  };
  const Tensors expected = results(0);
  for (int64_t chunk : {1, 5, 12, 13, 100})
    expect_close("chunk " + std::to_string(chunk), results(chunk), expected, 1e-14);
}

TEST(CrossEntropy, LossIsFp64AndWithoutZLoss) {
  const OpCase c = loss_case(kLabels, 17, 7, {.z_loss = 0.5});
  const Tensors outputs = Instance(c, at::kFloat).run();
  EXPECT_EQ(outputs[0].scalar_type(), at::kFloat);
  EXPECT_EQ(outputs[1].scalar_type(), at::kDouble);
  EXPECT_GT(outputs[0].item<double>(), outputs[1].item<double>() + 1);
  EXPECT_FALSE(outputs[1].requires_grad());
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  ParamUnit unit("unit", at::kFloat);
  Param& head = unit.add({"head", {3, 1}, {}, {}});
  unit.allocate();
  head.weight().copy_(at::tensor({1000.0, -1000.0, 0.0}).view({3, 1}));
  at::Tensor h = at::ones({2, 1}, at::kFloat).requires_grad_();
  const CrossEntropyOutput out = cross_entropy(h, head, at::tensor({0, 1}, at::kLong), 0.5, {});
  out.total.backward();
  EXPECT_EQ(out.loss.item<double>(), 1000);  // (0 + 2000) / 2
  expect_close("dh", h.grad(), at::tensor({0.0, 1000.0}).view({2, 1}), 1e-6);
}

TEST(CrossEntropy, OnlyARootWithGradientOneWillDo) {
  const OpCase c = loss_case({1, 2}, 3, 2, {});
  EXPECT_THROW((Instance(c, at::kDouble).run()[0] * 2).backward(), std::logic_error);
}

TEST(CrossEntropy, LabelOutsideTheVocabularyThrows) {
  const OpCase c = loss_case({0, 3}, 3, 2, {});
  EXPECT_ANY_THROW(Instance(c, at::kDouble).run());
}

TEST(CrossEntropy, WithGradModeOffTheHeadGetsNoGradient) {
  const OpCase c = loss_case(kLabels, 17, 7, {});
  Instance instance(c, at::kDouble);
  const Tensors recorded = instance.run();
  const at::Tensor before = instance.param_grads()[0];
  const at::NoGradGuard no_grad;
  expect_close("outputs", instance.run(), recorded, 0);
  EXPECT_TRUE(at::equal(instance.param_grads()[0], before));
}

TEST(Logits, MatchesReference) {
  ParamUnit unit("unit", at::kDouble);
  Param& head = unit.add({"head", {5, 3}, {}, {}});
  unit.allocate();
  head.weight().copy_(normals({5, 3}, 1));
  const at::Tensor h = normals({4, 3}, 2), z = (h.unsqueeze(1) * head.weight()).sum(-1);
  expect_close("plain", logits(h, head, 0), z, 1e-14);
  expect_close("softcap", logits(h, head, 1.5), 1.5 * at::tanh(z / 1.5), 1e-14);
}

}  // namespace
}  // namespace weft::test
