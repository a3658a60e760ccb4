#include "weft/ops/linear.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/ops/gradcheck.h"

namespace weft::test {
namespace {

// One GEMM against a matmul per weight.
OpCase linear_case(int64_t tokens, int64_t in, const std::vector<int64_t>& outs, bool bias) {
  OpCase c;
  c.inputs = {normals({tokens, in}, 1)};
  for (size_t i = 0; i < outs.size(); ++i) c.params.push_back({fmt::format("w{}", i), {outs[i], in}, {}, {}});
  if (bias)
    for (size_t i = 0; i < outs.size(); ++i) c.params.push_back({fmt::format("b{}", i), {outs[i]}, {}, {}});
  const auto n = std::ptrdiff_t(outs.size());
  c.op = [n](const Tensors& x, const std::vector<Param*>& p) {
    return Tensors{column_linear(x[0], {p.begin(), p.begin() + n}, {p.begin() + n, p.end()})};
  };
  c.reference = [n, bias](const Tensors& x, const Tensors& w) {
    Tensors parts;
    for (size_t i = 0; i < size_t(n); ++i) {
      const at::Tensor y = (x[0].unsqueeze(1) * w[i].unsqueeze(0)).sum(-1);
      parts.push_back(bias ? y + w[size_t(n) + i] : y);
    }
    return Tensors{at::cat(parts, 1)};
  };
  return c;
}

OpCase embedding_case(const std::vector<int64_t>& ids, int64_t vocab, int64_t dim, double multiplier) {
  OpCase c;
  c.inputs = {at::tensor(ids)};
  c.params = {{"table", {vocab, dim}, {}, {}}};
  c.op = [=](const Tensors& x, const std::vector<Param*>& p) {
    return Tensors{embedding(x[0], *p[0], multiplier)};
  };
  c.reference = [=](const Tensors& x, const Tensors& w) {
    return Tensors{at::mm(at::one_hot(x[0], vocab).to(w[0].scalar_type()), w[0]) * multiplier};
  };
  return c;
}

TEST(Linear, MatchesReference) {
  check_op("one weight", linear_case(13, 7, {5}, false));
  check_op("one weight and bias", linear_case(13, 7, {5}, true));
  check_op("q, k and v", linear_case(17, 11, {12, 4, 4}, false));
  check_op("q, k and v with biases", linear_case(17, 11, {12, 4, 4}, true));
  check_op("one token", linear_case(1, 6, {3, 1}, true));
  check_op("all ones", linear_case(1, 1, {1}, true));
  check_op("600 tokens", linear_case(600, 3, {2, 5}, true));
}

TEST(Linear, WeightsOfOtherOrderAreRefused) {
  ParamUnit unit("unit", at::kDouble), other("other", at::kDouble);
  Param& a = unit.add({"a", {2, 3}, {}, {}});
  Param& b = unit.add({"b", {2, 3}, {}, {}});
  Param& c = other.add({"c", {2, 3}, {}, {}});
  unit.allocate();
  other.allocate();
  const at::Tensor x = normals({4, 3}, 1);
  EXPECT_NO_THROW(column_linear(x, {&a, &b}, {}));
  EXPECT_THROW(column_linear(x, {&b, &a}, {}), std::logic_error);
  EXPECT_THROW(column_linear(x, {&a, &c}, {}), std::logic_error);
}

TEST(Embedding, MatchesReference) {
  check_op("repeated ids", embedding_case({3, 0, 3, 3, 12, 5, 0}, 13, 5, 1));
  check_op("multiplier", embedding_case({3, 0, 3, 3, 12, 5, 0}, 13, 5, 2.5));
  check_op("one token", embedding_case({1}, 2, 3, 1));
  check_op("vocab 1, dim 1", embedding_case({0, 0, 0}, 1, 1, 3));
}

TEST(Embedding, IdOutsideTheTableThrows) {
  ParamUnit unit("unit", at::kDouble);
  Param& table = unit.add({"table", {4, 3}, {}, {}});
  unit.allocate();
  EXPECT_ANY_THROW(embedding(at::tensor({0, 4}, at::kLong), table));
  EXPECT_ANY_THROW(embedding(at::tensor({0, -1}, at::kLong), table));
}

TEST(Embedding, GradientHasTheSameBitsForAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  const int64_t tokens = 1009, vocab = 7, dim = 1000;
  const at::Tensor ids = (normals({tokens}, 1).abs() * 1e6).to(at::kLong).remainder(vocab);
  const at::Tensor dy = normals({tokens, dim}, 2).to(at::kFloat);
  const auto gradient = [&](int n) {
    at::set_num_threads(n);
    ParamUnit unit("unit", at::kFloat);
    Param& table = unit.add({"table", {vocab, dim}, {}, {}});
    unit.allocate();
    embedding(ids, table, 0.3).backward(dy);
    return table.grad().clone();
  };
  const at::Tensor one = gradient(1), two = gradient(2);
  at::set_num_threads(threads);
  EXPECT_GT(one.abs().max().item<double>(), 0);
  EXPECT_TRUE(at::equal(one, two));
}

}  // namespace
}  // namespace weft::test
