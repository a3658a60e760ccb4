// What ranks put into collectives, and what must come out.
#pragma once

#include <cstring>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "weft/comm/group.h"

namespace weft {

inline constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kBFloat16,
                                             at::kHalf,  at::kLong,   at::kByte};
// The last is beyond what an all-reduce exchanges at once, and divides by no number of ranks.
inline constexpr int64_t kSizes[] = {0, 1, 13, 20011};

/// What rank `rank` contributes: values whose sum depends on the order of the summands.
inline at::Tensor input_of(int64_t rank, int64_t numel, at::ScalarType dtype, int64_t salt = 0) {
  const at::Tensor index = at::arange(numel, at::kLong);
  const at::Tensor bits = (index * 7919 + rank * 104729 + salt * 31) % 1009;
  if (at::isIntegralType(dtype, false)) return (bits % 50).to(dtype);
  return ((bits - 504).to(at::kDouble) * at::pow(2.0, (index + rank) % 7) / 300).to(dtype);
}

/// As the contract says: in the order of the ranks, half precision in fp32.
inline at::Tensor expected_sum(int64_t ranks, int64_t numel, at::ScalarType dtype,
                               ReduceOp op = ReduceOp::sum) {
  const bool half = dtype == at::kBFloat16 || dtype == at::kHalf;
  const at::ScalarType wide = half ? at::kFloat : dtype;
  at::Tensor sum = input_of(0, numel, dtype).to(wide, false, true);
  for (int64_t rank = 1; rank < ranks; ++rank) {
    const at::Tensor next = input_of(rank, numel, dtype).to(wide);
    sum = op == ReduceOp::sum ? sum + next : at::maximum(sum, next);
  }
  return sum.to(dtype);
}

inline void expect_same_bits(const at::Tensor& found, const at::Tensor& expected) {
  ASSERT_EQ(found.scalar_type(), expected.scalar_type());
  ASSERT_EQ(found.numel(), expected.numel());
  if (found.numel() == 0) return;
  EXPECT_EQ(std::memcmp(found.data_ptr(), expected.data_ptr(), found.nbytes()), 0)
      << found.scalar_type() << " [" << found.numel() << "]: largest difference "
      << (found.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
}

/// Calls body(dtype, numel) for all of both.
template <class Body>
void for_dtypes_and_sizes(const Body& body) {
  for (const at::ScalarType dtype : kDtypes)
    for (const int64_t numel : kSizes) {
      SCOPED_TRACE(testing::Message() << dtype << " [" << numel << "]");
      body(dtype, numel);
    }
}

}  // namespace weft
