#include "weft/ops/attention.h"

#include <cmath>
#include <limits>
#include <numeric>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weft/base/philox.h"

#include "tests/ops/gradcheck.h"

namespace weft::test {
namespace {

struct Shape {
  std::vector<int64_t> documents;  // lengths
  int64_t heads, kv_heads, head_dim;

  int64_t tokens() const { return std::accumulate(documents.begin(), documents.end(), int64_t{0}); }
  std::vector<int64_t> cu_seqlens() const {
    std::vector<int64_t> result = {0};
    for (int64_t n : documents) result.push_back(result.back() + n);
    return result;
  }
};

// The kept probabilities' factors, from the definition: philox(key, query's index * heads + head, key's
// index).
at::Tensor dropout_factors(const Dropout& d, const at::Tensor& index, int64_t heads) {
  const int64_t tokens = index.size(0);
  at::Tensor factors = at::zeros({heads, tokens, tokens}, at::kDouble);
  auto f = factors.accessor<double, 3>();
  const auto token = index.accessor<int64_t, 1>();
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t j = 0; j < tokens; ++j)
        if (philox(d.key, uint64_t(token[i] * heads + h), uint64_t(token[j]))[0] * 0x1p-32 >= d.p)
          f[h][i][j] = 1 / (1 - d.p);
  return factors;
}

// The whole score matrix, each query head with a key and value head of its own. {out, lse}
Tensors reference_attention(const at::Tensor& qkv, const Shape& shape, const AttentionOptions& options,
                            const at::Tensor& index) {
  const auto parts = qkv.split_with_sizes({shape.heads, shape.kv_heads, shape.kv_heads}, 1);
  const int64_t tokens = shape.tokens(), group = shape.heads / shape.kv_heads;
  const at::Tensor q = parts[0], k = parts[1].repeat_interleave(group, 1),
                   v = parts[2].repeat_interleave(group, 1);
  at::Tensor scores = at::einsum("ihd,jhd->hij", {q, k}) * options.scale;
  if (options.softcap > 0) scores = options.softcap * at::tanh(scores / options.softcap);
  // The published form, slope * position of the key, differs by a constant of each row, which softmax
  // ignores.
  if (!options.alibi_slopes.empty()) {
    const at::Tensor position = at::arange(tokens, at::kDouble);
    scores = scores + at::tensor(options.alibi_slopes, at::kDouble).view({-1, 1, 1}) *
                          (position - position.unsqueeze(1));
  }

  std::vector<int64_t> document;
  for (size_t d = 0; d < shape.documents.size(); ++d)
    document.insert(document.end(), size_t(shape.documents[d]), int64_t(d));
  at::Tensor hidden = at::zeros({tokens, tokens}, at::kBool);
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t j = 0; j < tokens; ++j)
      hidden.accessor<bool, 2>()[i][j] = j > i || (options.window > 0 && j <= i - options.window) ||
                                         document[size_t(i)] != document[size_t(j)];
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  at::Tensor p = at::softmax(scores, -1);
  if (options.dropout.p > 0) p = p * dropout_factors(options.dropout, index, shape.heads);
  return {at::einsum("hij,jhd->ihd", {p, v}).reshape({tokens, -1}), at::logsumexp(scores, {-1})};
}

AttentionOptions options_of(const Shape& shape, AttentionOptions options) {
  options.n_heads = shape.heads;
  options.n_kv_heads = shape.kv_heads;
  return options;
}

OpCase attention_case(const Shape& shape, const AttentionOptions& given) {
  const AttentionOptions options = options_of(shape, given);
  const at::Tensor index = at::arange(shape.tokens(), at::kLong) * 3 + 100;
  OpCase c;
  c.inputs = {normals({shape.tokens(), shape.heads + 2 * shape.kv_heads, shape.head_dim}, 1)};
  c.op = [=](const Tensors& x, const std::vector<Param*>&) {
    const AttentionOutput result = attention(x[0], shape.cu_seqlens(), options, index);
    return Tensors{result.out, result.lse};
  };
  c.reference = [=](const Tensors& x, const Tensors&) {
    return reference_attention(x[0], shape, options, index);
  };
  return c;
}

AttentionOptions plain(double scale = 0.5) { return {.scale = scale, .dropout = {}}; }
AttentionOptions window(int64_t keys) { return {.scale = 0.5, .window = keys, .dropout = {}}; }
AttentionOptions softcap(double cap) { return {.scale = 1.5, .softcap = cap, .dropout = {}}; }
AttentionOptions dropped(double p) { return {.scale = 0.5, .dropout = {p, 12345}}; }

TEST(Attention, HeadsAndDocuments) {
  check_op("one token, one head", attention_case({{1}, 1, 1, 2}, plain()));
  check_op("head_dim 1", attention_case({{5}, 1, 1, 1}, plain()));
  check_op("one document", attention_case({{11}, 3, 3, 5}, plain()));
  check_op("documents", attention_case({{1, 7, 1, 5, 13}, 2, 2, 4}, plain(2)));
  check_op("documents of one token", attention_case({{1, 1, 1}, 2, 1, 4}, plain()));
  check_op("groups of 3", attention_case({{13, 4}, 6, 2, 4}, plain()));
  check_op("groups of 2, 3 of them", attention_case({{9, 2}, 6, 3, 2}, plain()));
  check_op("MQA", attention_case({{17}, 5, 1, 3}, plain()));
}

TEST(Attention, Window) {
  check_op("of 1", attention_case({{6, 3}, 2, 1, 4}, window(1)));
  check_op("of 3", attention_case({{2, 11, 3, 4}, 4, 2, 4}, window(3)));
  check_op("as long as the document", attention_case({{7}, 2, 2, 4}, window(7)));
  check_op("longer", attention_case({{7, 5}, 2, 2, 4}, window(100)));
}

TEST(Attention, Softcap) {
  check_op("tight", attention_case({{7, 5}, 4, 2, 4}, softcap(1.5)));
  check_op("loose", attention_case({{7, 5}, 2, 2, 4}, softcap(50)));
}

AttentionOptions alibi(int64_t heads) {
  return {.scale = 0.5, .alibi_slopes = alibi_slopes(heads), .dropout = {}};
}

TEST(Attention, Alibi) {
  check_op("one head", attention_case({{5}, 1, 1, 3}, alibi(1)));
  check_op("documents", attention_case({{7, 1, 5}, 4, 4, 2}, alibi(4)));
  check_op("6 heads, GQA", attention_case({{11, 3}, 6, 2, 5}, alibi(6)));
  AttentionOptions everything = alibi(2);
  everything.window = 270, everything.softcap = 3, everything.dropout = {0.2, 99};
  check_op("everything", attention_case({{5, 300}, 2, 1, 2}, everything));
}

// The slopes that the paper's code gives for 8 and for 6 heads.
TEST(Attention, AlibiSlopes) {
  std::vector<double> eight;
  for (int i = 1; i <= 8; ++i) eight.push_back(std::exp2(-i));
  EXPECT_EQ(alibi_slopes(8), eight);
  EXPECT_EQ(alibi_slopes(6), (std::vector<double>{0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}));
  EXPECT_EQ(alibi_slopes(1), std::vector<double>{std::exp2(-8)});
}

TEST(Attention, Dropout) {
  check_op("alone", attention_case({{7, 1, 5}, 4, 2, 4}, dropped(0.3)));
  check_op(
      "with everything",
      attention_case({{2, 11, 3}, 6, 2, 4}, {.scale = 0.7, .window = 4, .softcap = 3, .dropout = {0.2, 99}}));
}

TEST(Attention, SequencesLongerThanABlockOfQueries) {
  check_op("257", attention_case({{257}, 1, 1, 2}, plain()));
  check_op("600, GQA", attention_case({{600}, 2, 1, 2}, plain()));
  check_op("documents across blocks", attention_case({{3, 300, 1, 259}, 2, 1, 2}, plain()));
  check_op("window within a block", attention_case({{520}, 2, 2, 2}, window(100)));
  check_op("window of a block", attention_case({{520, 10}, 2, 2, 2}, window(256)));
  check_op("window over blocks", attention_case({{530}, 1, 1, 2}, window(300)));
  check_op("everything", attention_case({{5, 300}, 2, 1, 2},
                                        {.scale = 0.7, .window = 270, .softcap = 3, .dropout = {0.2, 99}}));
}

TEST(Attention, LargeScoresDoNotOverflow) {
  const Shape shape{{9, 4}, 2, 1, 4};
  const AttentionOptions options = options_of(shape, plain(1000));
  at::Tensor qkv = normals({13, 4, 4}, 1).to(at::kFloat).requires_grad_();
  const AttentionOutput result = attention(qkv, shape.cu_seqlens(), options);
  result.out.sum().backward();
  EXPECT_TRUE(at::isfinite(result.out).all().item<bool>());
  EXPECT_TRUE(at::isfinite(qkv.grad()).all().item<bool>());
  expect_close("out", result.out, reference_attention(qkv.detach().to(at::kDouble), shape, options, {})[0],
               1e-3);
}

// With a cache the queries are the last rows of what one pass over the whole document gives.
TEST(AttentionForward, FewerQueriesThanKeysGiveTheLastRows) {
  for (const AttentionOptions& given : {plain(), window(1), window(7), softcap(2), window(300), alibi(4)})
    for (const auto& [keys, queries] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {37, 1}, {37, 5}, {37, 36}, {37, 37}, {600, 1}, {600, 300}, {301, 257}}) {
      const Shape shape{{keys}, 4, 2, 4};
      const AttentionOptions options = options_of(shape, given);
      const at::Tensor qkv = normals({keys, 8, 4}, 1);
      const Tensors full = reference_attention(qkv, shape, options, {});
      const at::Tensor q = qkv.narrow(1, 0, 4).narrow(0, keys - queries, queries);
      const AttentionOutput last =
          attention_forward(q, qkv.narrow(1, 4, 2), qkv.narrow(1, 6, 2), {{0, queries, 0, keys}}, options);
      SCOPED_TRACE(fmt::format("{} queries, {} keys, window {}", queries, keys, options.window));
      expect_close("out", last.out, full[0].narrow(0, keys - queries, queries), 1e-12);
      expect_close("lse", last.lse, full[1].narrow(1, keys - queries, queries), 1e-12);
    }
}

TEST(AttentionForward, SpansOfDifferentDepths) {
  const Shape first{{9}, 2, 2, 4}, second{{5}, 2, 2, 4};
  const AttentionOptions options = options_of(first, window(4));
  const at::Tensor qkv = normals({14, 6, 4}, 1);
  const at::Tensor a = reference_attention(qkv.narrow(0, 0, 9), first, options, {})[0].narrow(0, 6, 3);
  const at::Tensor b = reference_attention(qkv.narrow(0, 9, 5), second, options, {})[0].narrow(0, 4, 1);
  const at::Tensor q = qkv.narrow(1, 0, 2);
  const AttentionOutput got =
      attention_forward(at::cat({q.narrow(0, 6, 3), q.narrow(0, 13, 1)}), qkv.narrow(1, 2, 2),
                        qkv.narrow(1, 4, 2), {{0, 3, 0, 9}, {3, 4, 9, 14}}, options);
  expect_close("out", got.out, at::cat({a, b}), 1e-12);
}

// A document's output is the same wherever it lies, its dropout included.
TEST(Attention, DropoutDependsOnTheGlobalIndexOnly) {
  const AttentionOptions options = options_of({{}, 2, 1, 4}, dropped(0.4));
  const at::Tensor qkv = normals({12, 4, 4}, 1), index = at::arange(12, at::kLong);
  const auto rotated = [](const at::Tensor& x) { return at::cat({x.narrow(0, 5, 7), x.narrow(0, 0, 5)}); };
  const at::Tensor out = attention(qkv, {0, 5, 12}, options, index).out;
  expect_close("swapped", attention(rotated(qkv), {0, 7, 12}, options, rotated(index)).out, rotated(out),
               1e-14);
  expect_close("alone", attention(qkv.narrow(0, 5, 7), {0, 7}, options, index.narrow(0, 5, 7)).out,
               out.narrow(0, 5, 7), 1e-14);
  const at::Tensor other = attention(qkv, {0, 5, 12}, options, index + 1).out;
  EXPECT_GT(relative_error(other, out), 0.1);
}

}  // namespace
}  // namespace weft::test
