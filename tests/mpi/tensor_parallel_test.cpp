// The exchanges of tensor parallelism, plain and piece by piece, against the whole tensors.
#include "weft/ops/tensor_parallel.h"

#include <ATen/ATen.h>

#include "tests/mpi/inputs.h"
#include "tests/mpi/world.h"

namespace weft {
namespace {

// What rank `rank` has: [rows, columns], small integers, so that sums are exact in any order.
at::Tensor numbers(int64_t rank, int64_t rows, int64_t columns, int64_t salt) {
  const at::Tensor i = at::arange(rows * columns, at::kLong) * 7919 + rank * 104729 + salt * 31;
  return (i % 23 - 11).to(at::kDouble).view({rows, columns});
}

struct Sizes {
  int64_t rows, dim, features;  // rows: of one rank
};
constexpr Sizes kShapes[] = {{5, 3, 4}, {1, 1, 1}, {13, 7, 2}, {0, 3, 4}, {64, 16, 33}};

/// Calls body(tp, sizes) with tokens whole, split, and split with async exchanges.
template <class Body>
void for_each_way(const Body& body) {
  const std::shared_ptr<Group> group = everyone("tp");
  for (const bool sequence : {false, true})
    for (const bool async : {false, true})
      for (const Sizes& sizes : kShapes) {
        SCOPED_TRACE(testing::Message() << (sequence ? "tokens split" : "tokens whole")
                                        << (async ? ", async, " : ", ") << sizes.rows << " rows");
        body(TensorParallel{group.get(), sequence, async}, sizes);
      }
}

/// The tokens of all ranks, one behind the other, or where they are whole those that each has.
at::Tensor all_tokens(const TensorParallel& tp, int64_t rows, int64_t columns) {
  if (!tp.sequence) return numbers(0, rows, columns, 1);
  std::vector<at::Tensor> parts;
  for (int64_t rank = 0; rank < tp.size(); ++rank) parts.push_back(numbers(rank, rows, columns, 1));
  return at::cat(parts);
}

TEST(TensorParallel, EnteringGivesAllTokensAndTheirProduct) {
  for_each_way([](const TensorParallel& tp, const Sizes& sizes) {
    const at::Tensor own = numbers(tp.sequence ? tp.rank() : 0, sizes.rows, sizes.dim, 1);
    const at::Tensor w = numbers(tp.rank(), sizes.dim, sizes.features, 2);
    const at::Tensor expected = all_tokens(tp, sizes.rows, sizes.dim);
    expect_same_bits(tp.enter(own).wait(), expected);
    const auto [all, product] = tp.enter_mm(own, w);
    expect_same_bits(all, expected);
    expect_same_bits(product, at::mm(expected, w));
    expect_same_bits(tp.enter_mm(own.t().contiguous().t(), w).second, product);  // of any strides
    EXPECT_TRUE(at::equal(tp.outside(expected), own));
  });
}

TEST(TensorParallel, LeavingSumsOverRanks) {
  for_each_way([](const TensorParallel& tp, const Sizes& sizes) {
    const int64_t tokens = sizes.rows * (tp.sequence ? tp.size() : 1);
    const auto x = [&](int64_t rank) { return numbers(rank, tokens, sizes.dim, 3); };
    const auto w = [&](int64_t rank) { return numbers(rank, sizes.dim, sizes.features, 4); };
    at::Tensor sum = at::zeros({tokens, sizes.features}, at::kDouble);
    for (int64_t rank = 0; rank < tp.size(); ++rank) sum += at::mm(x(rank), w(rank));
    const at::Tensor expected = tp.outside(sum).contiguous();
    expect_same_bits(tp.leave(at::mm(x(tp.rank()), w(tp.rank()))).wait().contiguous(), expected);
    expect_same_bits(tp.mm_leave(x(tp.rank()), w(tp.rank())).wait().contiguous(), expected);
  });
}

TEST(TensorParallel, GatherStacksTheRanks) {
  const std::shared_ptr<Group> group = everyone("tp");
  const TensorParallel tp{group.get()};
  const at::Tensor all = tp.gather(numbers(tp.rank(), 4, 3, 5));
  ASSERT_EQ(all.sizes(), (std::vector<int64_t>{tp.size(), 4, 3}));
  for (int64_t rank = 0; rank < tp.size(); ++rank)
    expect_same_bits(all[rank].contiguous(), numbers(rank, 4, 3, 5));
}

}  // namespace
}  // namespace weft
