#include "weft/ops/dropout.h"

#include <cmath>
#include <set>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "weft/base/philox.h"

#include "tests/ops/gradcheck.h"

namespace weft::test {
namespace {

// The mask as its definition says: element (token, j) is word j mod 4 of philox(key, token, j / 4).
at::Tensor mask_of(const Dropout& d, const at::Tensor& index, int64_t dim) {
  at::Tensor mask = at::zeros({index.size(0), dim}, at::kDouble);
  for (int64_t t = 0; t < index.size(0); ++t)
    for (int64_t j = 0; j < dim; ++j) {
      const uint32_t word = philox(d.key, uint64_t(index[t].item<int64_t>()), uint64_t(j / 4))[size_t(j % 4)];
      if (word * 0x1p-32 >= d.p) mask[t][j] = 1 / (1 - d.p);
    }
  return mask;
}

// Of ones: which elements are kept.
at::Tensor kept(const Dropout& d, const at::Tensor& index, int64_t dim) {
  return dropout(at::ones({index.size(0), dim}, at::kDouble), d, index) != 0;
}

OpCase dropout_case(const std::vector<int64_t>& indices, int64_t dim, double p) {
  const Dropout d{p, random_key(1, 2, "site")};
  const at::Tensor index = at::tensor(indices, at::kLong);
  OpCase c;
  c.inputs = {normals({index.size(0), dim}, 1)};
  c.op = [=](const Tensors& x, const std::vector<Param*>&) { return Tensors{dropout(x[0], d, index)}; };
  c.reference = [=](const Tensors& x, const Tensors&) { return Tensors{x[0] * mask_of(d, index, dim)}; };
  return c;
}

TEST(Dropout, MatchesReferenceForwardAndBackward) {
  check_op("small", dropout_case({0, 1, 2, 3, 4, 5, 6}, 9, 0.4));
  check_op("any order", dropout_case({7, 5000000000, 3, 3}, 5, 0.2));
  check_op("one token, dim 1", dropout_case({0}, 1, 0.5));
}

TEST(Dropout, OffIsTheIdentity) {
  const at::Tensor x = normals({3, 5}, 1);
  EXPECT_TRUE(dropout(x, {}, {}).is_same(x));
}

TEST(Dropout, MaskDependsOnTheGlobalIndexOnly) {
  const Dropout d{0.3, random_key(42, 1, "embedding")};
  const at::Tensor index = at::arange(101, at::kLong);
  const at::Tensor all = kept(d, index, 37);
  const at::Tensor order = at::randperm(101, at::detail::createCPUGenerator(1), at::TensorOptions(at::kLong));
  EXPECT_TRUE(at::equal(kept(d, order, 37), all.index_select(0, order)));
  EXPECT_TRUE(at::equal(kept(d, index.narrow(0, 41, 17), 37), all.narrow(0, 41, 17)));
  EXPECT_TRUE(at::equal(kept(d, index, 30), all.narrow(1, 0, 30)));
  EXPECT_TRUE(at::equal(kept(d, index.narrow(0, 7, 1), 37), all.narrow(0, 7, 1)));
  EXPECT_TRUE(at::equal(kept(d, at::arange(0, 101, 2, at::kLong), 37), all.slice(0, 0, 101, 2)));
}

TEST(Dropout, RateIsRight) {
  const int64_t tokens = 1009, dim = 257;
  const double n = double(tokens * dim);
  for (double p : {0.01, 0.1, 0.5, 0.9}) {
    const at::Tensor keep = kept({p, random_key(42, 1, "site")}, at::arange(tokens, at::kLong), dim);
    EXPECT_NEAR(1 - keep.to(at::kDouble).mean().item<double>(), p, 4 * std::sqrt(p * (1 - p) / n));
  }
}

TEST(Dropout, StepsSitesAndSeedsHaveTheirOwnMasks) {
  const double p = 0.5, n = 1009 * 64;
  const at::Tensor index = at::arange(1009, at::kLong);
  std::vector<at::Tensor> masks;
  for (uint64_t key :
       {random_key(42, 1, "a"), random_key(42, 2, "a"), random_key(42, 1, "b"), random_key(43, 1, "a")})
    masks.push_back(kept({p, key}, index, 64).to(at::kDouble));
  for (size_t i = 0; i < masks.size(); ++i)
    for (size_t j = 0; j < i; ++j)  // independent masks agree on half of the elements
      EXPECT_NEAR((masks[i] == masks[j]).to(at::kDouble).mean().item<double>(), 0.5, 4 * 0.5 / std::sqrt(n));
}

TEST(Dropout, HasTheSameBitsForAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  const at::Tensor index = at::arange(1009, at::kLong);
  at::set_num_threads(1);
  const at::Tensor one = kept({0.3, 7}, index, 65);
  at::set_num_threads(2);
  const at::Tensor two = kept({0.3, 7}, index, 65);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one, two));
}

// From an independent implementation (Python: Philox4x32-10 and the xxhash package). A change here changes
// every run with dropout.
TEST(Dropout, GoldenMask) {
  const Dropout d{0.5, random_key(42, 7, "layers.3.attention")};
  EXPECT_EQ(d.key, 0xe837a811e0b8c73au);
  const at::Tensor keep = kept(d, at::tensor({int64_t{0}, int64_t{1}, int64_t{5000000000}}), 10);
  std::string bits;
  for (int64_t i = 0; i < keep.numel(); ++i) bits += keep.view(-1)[i].item<bool>() ? '1' : '0';
  EXPECT_EQ(bits,
            "1100111110"
            "0100000000"
            "1001101110");
}

TEST(RandomKey, DiffersForEachSeedStepAndSite) {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 8; ++seed)
    for (int64_t step = 0; step < 32; ++step)
      for (const char* site : {"", "embedding", "layers.0.attention", "layers.1.attention", "layers.1.mlp"})
        keys.insert(random_key(seed, step, site));
  EXPECT_EQ(keys.size(), 8u * 32 * 5);
}

}  // namespace
}  // namespace weft::test
