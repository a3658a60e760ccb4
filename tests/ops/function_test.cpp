#include "weft/ops/function.h"

#include <stdexcept>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "weft/ops/linear.h"

#include "tests/ops/gradcheck.h"

namespace weft::test {
namespace {

TEST(AsTensor, MatchesReference) {
  OpCase c;
  c.inputs = {normals({5, 3}, 1)};
  c.params = {{"w", {4, 3}, {}, {}}, {"b", {4}, {}, {}}};
  c.op = [](const Tensors& x, const std::vector<Param*>& p) {
    return Tensors{at::tanh(at::addmm(as_tensor(*p[1]), x[0], as_tensor(*p[0]).t()))};
  };
  c.reference = [](const Tensors& x, const Tensors& w) {
    return Tensors{at::tanh((x[0].unsqueeze(1) * w[0]).sum(-1) + w[1])};
  };
  check_op("layer in ATen", c);

  c.op = [](const Tensors& x, const std::vector<Param*>& p) {
    const at::Tensor w = as_tensor(*p[0]);
    return Tensors{at::mm(x[0], w.t()) * as_tensor(*p[0]).sum() * w.square().sum() + as_tensor(*p[1])};
  };
  c.reference = [](const Tensors& x, const Tensors& w) {
    return Tensors{(x[0].unsqueeze(1) * w[0]).sum(-1) * w[0].sum() * w[0].square().sum() + w[1]};
  };
  check_op("one param used several times", c);
}

TEST(AsTensor, SharesItsParamsMemory) {
  ParamUnit unit("unit", at::kDouble);
  Param& w = unit.add({"w", {2, 3}, {}, {}});
  unit.allocate();
  const at::Tensor tensor = as_tensor(w);
  EXPECT_EQ(tensor.const_data_ptr(), w.weight().const_data_ptr());
  EXPECT_TRUE(tensor.requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(as_tensor(w).requires_grad());
}

// Counts the ops alive, and throws on demand.
struct Probe : Op {
  static inline int alive = 0;
  explicit Probe(bool throws = false) : throws_(throws) { ++alive; }
  ~Probe() override { --alive; }
  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    was_recording = recording;
    kept_ = Saved(inputs[0]);
    return {inputs[0] * 2, inputs[0] * 3};
  }
  std::vector<at::Tensor> backward(at::TensorList grads) override {
    EXPECT_FALSE(at::GradMode::is_enabled());
    if (throws_) throw std::domain_error("probe");
    first = grads[0].defined(), second = grads[1].defined();
    return {(first ? grads[0] * 2 : at::zeros_like(kept_.get())) + (second ? grads[1] * 3 : at::zeros({}))};
  }
  const char* name() const override { return "probe"; }
  static inline bool was_recording, first, second;

 private:
  bool throws_;
  Saved kept_;
};

TEST(Apply, RecordsOnlyInGradMode) {
  const at::Tensor x = normals({3}, 1);
  apply(std::make_shared<Probe>(), {x});
  EXPECT_TRUE(Probe::was_recording);
  const at::NoGradGuard no_grad;
  apply(std::make_shared<Probe>(), {x});
  EXPECT_FALSE(Probe::was_recording);
}

TEST(Apply, OutputsWithoutGradientArriveUndefined) {
  at::Tensor x = normals({3}, 1).requires_grad_();
  const auto outputs = apply(std::make_shared<Probe>(), {x});
  outputs[1].sum().backward();
  EXPECT_FALSE(Probe::first);
  EXPECT_TRUE(Probe::second);
  expect_close("gradient", x.grad(), at::full({3}, 3.0, at::kDouble), 0);
}

TEST(Apply, TheOpGoesWithTheGraphOrAfterBackward) {
  at::Tensor x = normals({3}, 1).requires_grad_();
  {
    const auto outputs = apply(std::make_shared<Probe>(), {x});
    EXPECT_EQ(Probe::alive, 1);
  }
  EXPECT_EQ(Probe::alive, 0);
  const auto outputs = apply(std::make_shared<Probe>(), {x});
  const at::Tensor sum = outputs[0].sum();
  sum.backward({}, /*retain_graph=*/true);
  EXPECT_EQ(Probe::alive, 0);
  EXPECT_THROW(sum.backward(), std::logic_error);
}

TEST(Apply, ExceptionsPassThroughBackwardAsTheyAre) {
  at::Tensor x = normals({3}, 1).requires_grad_();
  {
    const auto outputs = apply(std::make_shared<Probe>(/*throws=*/true), {x});
    EXPECT_THROW(outputs[0].sum().backward(), std::domain_error);
  }
  EXPECT_EQ(Probe::alive, 0);
}

// A kept output (as attention keeps its own) must not keep the node that keeps it.
struct KeepsItsOutput : Op {
  std::vector<at::Tensor> forward(at::TensorList inputs) override {
    const at::Tensor y = inputs[0].exp();
    y_ = Saved(y);
    return {y};
  }
  std::vector<at::Tensor> backward(at::TensorList grads) override { return {grads[0] * y_.get()}; }
  const char* name() const override { return "keeps_its_output"; }
  Saved y_;
};

TEST(Saved, AKeptOutputDoesNotLeak) {
  at::Tensor x = normals({3}, 1).requires_grad_();
  c10::weak_intrusive_ptr<c10::TensorImpl> input(x.getIntrusivePtr());
  std::weak_ptr<Op> op;
  {
    const auto made = std::make_shared<KeepsItsOutput>();
    op = made;
    apply(made, {x * 1});
  }
  EXPECT_TRUE(op.expired());
  x.reset();
  EXPECT_TRUE(input.expired());
}

TEST(Ops, AChainKeepsNothingAfterBackward) {
  ParamUnit unit("unit", at::kDouble);
  Param& w = unit.add({"w", {3, 3}, {}, {}});
  unit.allocate();
  at::Tensor x = normals({4, 3}, 1).requires_grad_();
  const at::Tensor hidden = column_linear(x, {&w}, {}), y = column_linear(hidden, {&w}, {});
  EXPECT_EQ(holders(x), 2u);  // ours and the op's
  EXPECT_EQ(holders(hidden), 2u);
  y.backward(at::ones_like(y));
  EXPECT_EQ(holders(x), 1u);
  EXPECT_EQ(holders(hidden), 1u);
}

}  // namespace
}  // namespace weft::test
