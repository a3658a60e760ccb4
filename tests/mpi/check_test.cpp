// comm.check, which the tests run with: ranks that do not do the same all learn who does what.
#include <functional>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/mpi/world.h"

namespace weft {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

class CheckTest : public testing::Test {
 protected:
  void SetUp() override {
    world();
    if (n_ < 2) GTEST_SKIP() << "needs two ranks";
  }

  /// What the operation that `body` issues ends with: "" if well.
  std::string error_of(const std::function<Request(Group&)>& body) {
    const auto group = everyone("checked");
    try {
      body(*group).wait();
      return "";
    } catch (const CommError& error) {
      return error.what();
    }
  }

  /// Of "ranks 0 to 2 issue A, but rank 3 B"; which of two ranks is wrong nobody knows.
  std::string expected(const std::string& most, const std::string& last) const {
    const std::string others = n_ == 2   ? "rank 0 issues "
                               : n_ == 3 ? "ranks 0 and 1 issue "
                                         : "ranks 0 to 2 issue ";
    return ": " + others + most + ", but rank " + std::to_string(n_ - 1) + " " + last + " (comm.check)";
  }

  const int n_ = int(world().size());
  const bool last_ = world().rank() == n_ - 1;
};

TEST_F(CheckTest, AnotherOperation) {
  const std::string error = error_of([&](Group& group) {
    return last_ ? group.all_reduce(at::zeros({n_ * 12}))
                 : group.all_gather(at::zeros({n_ * 12}), at::zeros({12}));
  });
  const std::string numel = std::to_string(n_ * 12);
  EXPECT_THAT(
      error,
      AllOf(HasSubstr(" over checked: "),
            EndsWith(expected("all_gather of " + numel + " fp32", "all_reduce(sum) of " + numel + " fp32"))));
}

TEST_F(CheckTest, AnotherSize) {
  EXPECT_THAT(error_of([&](Group& group) { return group.all_reduce(at::zeros({last_ ? 30'000 : 12})); }),
              EndsWith(expected("all_reduce(sum) of 12 fp32", "all_reduce(sum) of 30000 fp32")));
  EXPECT_THAT(
      error_of([&](Group& group) {
        return group.all_gather(at::zeros({n_ * (last_ ? 0 : 100'000)}), at::zeros({last_ ? 0 : 100'000}));
      }),
      EndsWith(expected("all_gather of " + std::to_string(n_ * 100'000) + " fp32", "all_gather of 0 fp32")));
}

TEST_F(CheckTest, AnotherDtype) {
  EXPECT_THAT(error_of([&](Group& group) {
                return group.reduce_scatter(at::zeros({7}, last_ ? at::kBFloat16 : at::kHalf),
                                            at::zeros({7 * n_}, last_ ? at::kBFloat16 : at::kHalf));
              }),
              EndsWith(expected("reduce_scatter(sum) of " + std::to_string(7 * n_) + " fp16",
                                "reduce_scatter(sum) of " + std::to_string(7 * n_) + " bf16")));
}

TEST_F(CheckTest, AnotherReduction) {
  EXPECT_THAT(error_of([&](Group& group) {
                return group.all_reduce(at::zeros({3}), last_ ? ReduceOp::max : ReduceOp::sum);
              }),
              EndsWith(expected("all_reduce(sum) of 3 fp32", "all_reduce(max) of 3 fp32")));
}

TEST_F(CheckTest, AnotherRoot) {
  EXPECT_THAT(
      error_of([&](Group& group) { return group.broadcast(at::zeros({3}, at::kLong), last_ ? 1 : 0); }),
      EndsWith(expected("broadcast of 3 int64 from 0", "broadcast of 3 int64 from 1")));
}

TEST_F(CheckTest, AllToAllOfOtherCounts) {
  // The last rank sends one more to the first.
  std::vector<int64_t> sent(size_t(n_), 2), expected(size_t(n_), 2);
  if (last_) ++sent[0];
  const int64_t rows = 2 * n_ + (last_ ? 1 : 0);
  EXPECT_THAT(error_of([&](Group& group) {
                return group.all_to_all(at::zeros({2 * n_, 5}), at::zeros({rows, 5}), expected, sent);
              }),
              EndsWith(": rank " + std::to_string(n_ - 1) +
                       " sends 15 elements to rank 0, which expects 10 (comm.check)"));
}

TEST_F(CheckTest, AnOperationThatIsLeftOut) {
  // All but the last issue one more before; the next one gives it away.
  EXPECT_THAT(error_of([&](Group& group) {
                if (!last_) group.broadcast(at::zeros({3}), 0);
                return group.all_reduce(at::zeros({3}));
              }),
              AllOf(HasSubstr("all_reduce"),
                    EndsWith(expected("broadcast of 3 fp32 from 0", "all_reduce(sum) of 3 fp32"))));
}

TEST_F(CheckTest, WhatIsComparedDoesNotCountAsSent) {
  const auto group = everyone("counted");
  const CommTotals before = World::totals();
  group
      ->all_to_all(at::zeros({n_}), at::zeros({n_}), std::vector<int64_t>(size_t(n_), 1),
                   std::vector<int64_t>(size_t(n_), 1))
      .wait();
  const CommTotals added = World::totals() - before;
  EXPECT_EQ(added.at({"counted", "all_to_all"}).bytes, (n_ - 1) * 4);
}

}  // namespace
}  // namespace weft
