// Every collective of Group, on the ranks that the tests are started with, against what one rank computes by
// itself: any rank can make any other's input.
#include "weft/comm/group.h"

#include <cstring>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/trace.h"
#include "weft/comm/mpi_link.h"

#include "tests/mpi/inputs.h"
#include "tests/mpi/world.h"

namespace weft {
namespace {

using testing::HasSubstr;

class GroupTest : public testing::Test {
 protected:
  void SetUp() override { world(); }
  void TearDown() override { MpiLink::max_message() = int64_t{1} << 30; }

  std::shared_ptr<Group> group_ = everyone();
  const int n_ = group_->size();
  const int rank_ = group_->rank();
  at::Tensor own(int64_t numel, at::ScalarType dtype, int64_t salt = 0) const {
    return input_of(rank_, numel, dtype, salt);
  }
  /// All ranks' inputs, one behind the other.
  at::Tensor all(int64_t numel, at::ScalarType dtype, int64_t salt = 0) const {
    std::vector<at::Tensor> parts;
    for (int peer = 0; peer < n_; ++peer) parts.push_back(input_of(peer, numel, dtype, salt));
    return at::cat(parts);
  }
};

TEST_F(GroupTest, AllReduceSumsInTheOrderOfTheRanks) {
  for_dtypes_and_sizes([&](at::ScalarType dtype, int64_t numel) {
    const at::Tensor tensor = own(numel, dtype);
    group_->all_reduce(tensor).wait();
    expect_same_bits(tensor, expected_sum(n_, numel, dtype));
  });
}

TEST_F(GroupTest, AllReduceFindsTheMaximum) {
  for_dtypes_and_sizes([&](at::ScalarType dtype, int64_t numel) {
    const at::Tensor tensor = own(numel, dtype);
    group_->all_reduce(tensor, ReduceOp::max).wait();
    expect_same_bits(tensor, expected_sum(n_, numel, dtype, ReduceOp::max));
  });
}

// 1 + 256 · 2^-8 is 2 in fp32, but 1 in bf16, where 1 + 2^-8 rounds to 1.
TEST_F(GroupTest, HalfPrecisionIsSummedInFp32) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const double step = dtype == at::kHalf ? 0x1p-11 : 0x1p-8;
    const at::Tensor tensor = at::full({20011}, rank_ == 0 ? 1 : step, dtype);
    group_->all_reduce(tensor).wait();
    expect_same_bits(tensor, at::full({20011}, 1 + (n_ - 1) * step, dtype));
  }
}

TEST_F(GroupTest, AllGather) {
  for_dtypes_and_sizes([&](at::ScalarType dtype, int64_t numel) {
    const at::Tensor output = at::zeros({n_ * numel}, dtype);
    group_->all_gather(output, own(numel, dtype)).wait();
    expect_same_bits(output, all(numel, dtype));

    const at::Tensor in_place = at::zeros({n_ * numel}, dtype),
                     place = in_place.narrow(0, rank_ * numel, numel);
    place.copy_(own(numel, dtype));
    group_->all_gather(in_place, place).wait();
    expect_same_bits(in_place, all(numel, dtype));
  });
}

TEST_F(GroupTest, ReduceScatter) {
  for_dtypes_and_sizes([&](at::ScalarType dtype, int64_t numel) {
    const at::Tensor expected = expected_sum(n_, n_ * numel, dtype).narrow(0, rank_ * numel, numel);
    const at::Tensor output = at::zeros({numel}, dtype);
    group_->reduce_scatter(output, own(n_ * numel, dtype)).wait();
    expect_same_bits(output, expected);

    const at::Tensor input = own(n_ * numel, dtype), place = input.narrow(0, rank_ * numel, numel);
    group_->reduce_scatter(place, input).wait();
    expect_same_bits(place, expected);

    const at::Tensor largest = at::zeros({numel}, dtype);
    group_->reduce_scatter(largest, own(n_ * numel, dtype), ReduceOp::max).wait();
    expect_same_bits(largest,
                     expected_sum(n_, n_ * numel, dtype, ReduceOp::max).narrow(0, rank_ * numel, numel));
  });
}

TEST_F(GroupTest, AllToAllOfUnevenCounts) {
  // Rows of `width` elements that rank `from` sends to rank `to`: some none.
  const auto count = [](int from, int to) { return int64_t((2 * from + 3 * to) % 4); };
  const auto rows_of = [&](int from, int to) { return count(from, to) * (from + 1); };
  for_dtypes_and_sizes([&](at::ScalarType dtype, int64_t width) {
    const auto input = [&](int rank) {
      int64_t rows = 0;
      for (int to = 0; to < n_; ++to) rows += rows_of(rank, to);
      return input_of(rank, rows * width, dtype).view({rows, width});
    };
    std::vector<int64_t> sent, received;
    std::vector<at::Tensor> expected;
    for (int peer = 0; peer < n_; ++peer) {
      sent.push_back(rows_of(rank_, peer)), received.push_back(rows_of(peer, rank_));
      int64_t before = 0;
      for (int to = 0; to < rank_; ++to) before += rows_of(peer, to);
      expected.push_back(input(peer).narrow(0, before, received.back()));
    }
    const at::Tensor whole = at::cat(expected), output = at::zeros_like(whole);
    group_->all_to_all(output, input(rank_), received, sent).wait();
    expect_same_bits(output, whole);
  });
}

TEST_F(GroupTest, AllToAllOfNothing) {
  const std::vector<int64_t> none(size_t(n_), 0);
  group_->all_to_all(at::zeros({0}), at::zeros({0}), none, none).wait();
}

TEST_F(GroupTest, BroadcastFromEachRank) {
  for_dtypes_and_sizes([&](at::ScalarType dtype, int64_t numel) {
    for (int root = 0; root < n_; ++root) {
      const at::Tensor tensor = rank_ == root ? own(numel, dtype) : at::zeros({numel}, dtype);
      group_->broadcast(tensor, root).wait();
      expect_same_bits(tensor, input_of(root, numel, dtype));
    }
  });
}

// Around the ring, both ways at once; two messages between the same ranks are told apart by their tags.
TEST_F(GroupTest, MessagesAroundTheRing) {
  if (n_ == 1) GTEST_SKIP() << "needs two ranks";
  const int next = (rank_ + 1) % n_, previous = (rank_ + n_ - 1) % n_;
  for_dtypes_and_sizes([&](at::ScalarType dtype, int64_t numel) {
    const at::Tensor from_previous = at::zeros({numel}, dtype), from_next = at::zeros({numel}, dtype);
    group_
        ->batch({{P2P::Kind::send, own(numel, dtype, 1), next, 1},
                 {P2P::Kind::send, own(numel, dtype, 2), previous, 2},
                 {P2P::Kind::recv, from_next, next, 2},
                 {P2P::Kind::recv, from_previous, previous, 1}})
        .wait();
    expect_same_bits(from_previous, input_of(previous, numel, dtype, 1));
    expect_same_bits(from_next, input_of(next, numel, dtype, 2));
  });
}

TEST_F(GroupTest, SendsArriveByTagInAnyOrder) {
  constexpr int kTags = 5, kNumel = 5000;
  std::vector<Request> sends;
  if (rank_ == 0)
    for (int peer = 1; peer < n_; ++peer)
      for (int tag = 0; tag < kTags; ++tag)
        sends.push_back(group_->send(input_of(peer, kNumel, at::kFloat, tag), peer, tag));
  for (int tag = kTags - 1; rank_ > 0 && tag >= 0; --tag) {
    const at::Tensor received = at::zeros({kNumel}, at::kFloat);
    group_->recv(received, 0, tag).wait();
    expect_same_bits(received, own(kNumel, at::kFloat, tag));
  }
  for (Request& send : sends) send.wait();
}

TEST_F(GroupTest, ManyAtOnceAreWaitedForInAnotherOrder) {
  constexpr int kOperations = 24;
  std::vector<at::Tensor> tensors, expected;
  std::vector<Request> requests;
  for (int i = 0; i < kOperations; ++i) {
    const int64_t numel = i % 2 ? 101 : 9001;
    switch (i % 3) {
      case 0:
        tensors.push_back(own(numel, at::kFloat));
        requests.push_back(group_->all_reduce(tensors.back()));
        expected.push_back(expected_sum(n_, numel, at::kFloat));
        break;
      case 1:
        tensors.push_back(at::zeros({n_ * numel}));
        requests.push_back(group_->all_gather(tensors.back(), own(numel, at::kFloat, i)));
        expected.push_back(all(numel, at::kFloat, i));
        break;
      case 2:
        tensors.push_back(at::zeros({numel}));
        requests.push_back(group_->reduce_scatter(tensors.back(), own(n_ * numel, at::kFloat)));
        expected.push_back(expected_sum(n_, n_ * numel, at::kFloat).narrow(0, rank_ * numel, numel));
    }
  }
  for (int i = 0; i < kOperations; ++i) {  // each rank in an order of its own
    const size_t next = size_t((i * 7 + rank_ * 5) % kOperations);
    requests[next].wait();
    expect_same_bits(tensors[next], expected[next]);
  }
}

TEST_F(GroupTest, ARequestThatIsDroppedFinishes) {
  const at::Tensor tensor = own(20011, at::kFloat);
  group_->all_reduce(tensor);
  for (int turns = 0; turns < 1000; ++turns) {
    World::poll();
    group_->barrier();
  }
  expect_same_bits(tensor, expected_sum(n_, 20011, at::kFloat));
}

TEST_F(GroupTest, TestMovesARequestOn) {
  const at::Tensor tensor = own(20011, at::kFloat);
  Request request = group_->all_reduce(tensor);
  while (!request.test()) {
  }
  expect_same_bits(tensor, expected_sum(n_, 20011, at::kFloat));
}

TEST_F(GroupTest, SubsetsInAnyOrderOfTheirRanks) {
  // The even ranks and the odd ones, each backwards.
  std::vector<int64_t> ranks;
  for (int64_t rank = n_ - 1; rank >= 0; --rank)
    if (rank % 2 == rank_ % 2) ranks.push_back(rank);
  const auto half = world().group("half", ranks);
  EXPECT_EQ(half->ranks()[size_t(half->rank())], rank_);
  const at::Tensor output = at::zeros({int64_t(ranks.size()) * 13});
  half->all_gather(output, own(13, at::kFloat)).wait();
  std::vector<at::Tensor> expected;
  for (const int64_t rank : ranks) expected.push_back(input_of(rank, 13, at::kFloat));
  expect_same_bits(output, at::cat(expected));

  // Both groups at once.
  const at::Tensor mine = own(20011, at::kFloat), everyones = own(20011, at::kFloat);
  Request a = half->all_reduce(mine), b = group_->all_reduce(everyones);
  b.wait(), a.wait();
  expect_same_bits(everyones, expected_sum(n_, 20011, at::kFloat));
}

TEST_F(GroupTest, AGroupOfOne) {
  for (const auto& group : {world().group("self", {rank_}), Group::alone()}) {
    EXPECT_EQ(group->size(), 1);
    for_dtypes_and_sizes([&](at::ScalarType dtype, int64_t numel) {
      const at::Tensor input = own(numel, dtype), tensor = input.clone();
      at::Tensor output = at::zeros({numel}, dtype);
      group->all_reduce(tensor).wait();
      expect_same_bits(tensor, input);
      group->all_gather(output, input).wait();
      expect_same_bits(output, input);
      group->reduce_scatter(output.zero_(), input).wait();
      expect_same_bits(output, input);
      group->all_to_all(output.zero_(), input, {numel}, {numel}).wait();
      expect_same_bits(output, input);
      group->broadcast(tensor, 0).wait();
      expect_same_bits(tensor, input);
      group->barrier();
    });
    EXPECT_EQ(all_gather(*group, "text"), std::vector<std::string>{"text"});
  }
}

TEST_F(GroupTest, TextsAndNumbers) {
  std::vector<std::string> expected;
  for (int peer = 0; peer < n_; ++peer) expected.push_back(std::string(size_t(peer * 3), char('a' + peer)));
  EXPECT_EQ(all_gather(*group_, expected[size_t(rank_)]), expected);
  EXPECT_EQ(all_gather(*group_, ""), std::vector<std::string>(size_t(n_)));
  EXPECT_EQ(all_reduce(*group_, {double(rank_), 0.5}), (std::vector<double>{n_ * (n_ - 1) / 2.0, 0.5 * n_}));
  EXPECT_EQ(all_reduce(*group_, {double(rank_)}, ReduceOp::max), std::vector<double>{n_ - 1.0});
}

// What stands in for tensors beyond 2^31 bytes.
TEST_F(GroupTest, LargeTensorsTravelInPieces) {
  for (const int64_t bytes : {1, 1000, 80044}) {
    MpiLink::max_message() = bytes;
    const int64_t numel = bytes == 1 ? 13 : 20011;
    const at::Tensor tensor = own(numel, at::kFloat);
    group_->all_reduce(tensor).wait();
    expect_same_bits(tensor, expected_sum(n_, numel, at::kFloat));
    const at::Tensor output = at::zeros({n_ * numel});
    group_->all_gather(output, own(numel, at::kFloat)).wait();
    expect_same_bits(output, all(numel, at::kFloat));
    group_->barrier();
  }
}

TEST_F(GroupTest, AMessageOfAnotherSizeIsAnError) {
  if (n_ < 2) GTEST_SKIP() << "needs two ranks";
  if (rank_ > 1) return;
  const auto pair = world().group("pair", {0, 1});
  const at::Tensor tensor = at::zeros({rank_ == 0 ? 10 : 12});
  if (rank_ == 0) return pair->send(tensor, 1, 0).wait();
  try {
    pair->recv(tensor, 0, 0).wait();
    FAIL() << "no error";
  } catch (const CommError& error) {
    EXPECT_STREQ(error.what(), "send_recv over pair: rank 0 sent 40 bytes where 48 were expected");
  }
}

// ---------------------------------------------------------------- bytes

class GroupBytes : public GroupTest {
 protected:
  /// Bytes that `body` sends with operations of this kind.
  int64_t bytes(const char* kind, const std::function<void()>& body) {
    const CommTotals before = World::totals();
    body();
    const CommTotals added = World::totals() - before;
    EXPECT_EQ(added.size(), n_ > 1 ? 1u : 0u);
    if (n_ == 1) return 0;
    const auto& [place, total] = *added.begin();
    EXPECT_EQ(place, std::pair(std::string("everyone"), std::string(kind)));
    EXPECT_EQ(total.calls, 1);
    EXPECT_GE(total.seconds, 0);
    return total.bytes;
  }
};

TEST_F(GroupBytes, AllGatherSendsItsOwnToEachOther) {
  const int64_t numel = 5003;
  EXPECT_EQ(
      bytes("all_gather", [&] { group_->all_gather(at::zeros({n_ * numel}), at::zeros({numel})).wait(); }),
      (n_ - 1) * numel * 4);
}

TEST_F(GroupBytes, ReduceScatterSendsAllButItsOwn) {
  const int64_t numel = 5003;
  EXPECT_EQ(bytes("reduce_scatter",
                  [&] { group_->reduce_scatter(at::zeros({numel}), at::zeros({n_ * numel})).wait(); }),
            (n_ - 1) * numel * 4);
}

TEST_F(GroupBytes, AllReduceSendsTwice) {
  const int64_t numel = 12 * 5003;  // divides by 1, 2, 3 and 4 ranks
  EXPECT_EQ(bytes("all_reduce", [&] { group_->all_reduce(at::zeros({numel})).wait(); }),
            2 * (n_ - 1) * numel / n_ * 4);
}

TEST_F(GroupBytes, ASmallAllReduceSendsAllToEachOther) {
  EXPECT_EQ(bytes("all_reduce", [&] { group_->all_reduce(at::zeros({101}, at::kDouble)).wait(); }),
            (n_ - 1) * 101 * 8);
}

TEST_F(GroupBytes, AllToAllSendsItsCounts) {
  std::vector<int64_t> sent, received;
  int64_t expected = 0, rows = 0;
  for (int peer = 0; peer < n_; ++peer) {
    sent.push_back(rank_ + 2 * peer), received.push_back(peer + 2 * rank_);
    rows += sent.back();
    if (peer != rank_) expected += sent.back() * 3 * 4;
  }
  const int64_t received_rows = std::accumulate(received.begin(), received.end(), int64_t{0});
  EXPECT_EQ(
      bytes("all_to_all",
            [&] {
              group_->all_to_all(at::zeros({received_rows, 3}), at::zeros({rows, 3}), received, sent).wait();
            }),
      expected);
}

TEST_F(GroupBytes, OnlyTheRootOfABroadcastSends) {
  EXPECT_EQ(bytes("broadcast", [&] { group_->broadcast(at::zeros({101}), n_ - 1).wait(); }),
            rank_ == n_ - 1 ? (n_ - 1) * 101 * 4 : 0);
}

TEST_F(GroupBytes, MessagesCountWhereTheyAreSent) {
  if (n_ == 1) GTEST_SKIP() << "needs two ranks";
  EXPECT_EQ(bytes("send_recv",
                  [&] {
                    if (rank_ == 0) group_->send(at::zeros({101}), 1, 0).wait();
                    if (rank_ == 1) group_->recv(at::zeros({101}), 0, 0).wait();
                    if (rank_ > 1) group_->batch({}).wait();
                  }),
            rank_ == 0 ? 101 * 4 : 0);
}

// ---------------------------------------------------------------- trace

TEST_F(GroupTest, TheTraceShowsWhatAnOperationIsHiddenBehind) {
  if (n_ == 1) GTEST_SKIP() << "needs two ranks";
  Trace::global().restart();
  Trace::global().keep_events();
  const at::Tensor output = at::zeros({n_ * 5003});
  Request request = group_->all_gather(output, own(5003, at::kFloat));
  { const Span computing(SpanLevel::op, "linear", SpanKind::mlp); }
  request.wait();
  std::vector<SpanEvent> events = Trace::global().take_events();
  Trace::global().restart();
  const auto linear = std::ranges::find_if(events, [](const auto& e) { return e.title() == "linear"; });
  const auto gather = std::ranges::find_if(events, [](const auto& e) { return e.is_beside(); });
  ASSERT_TRUE(linear != events.end() && gather != events.end());
  EXPECT_EQ(gather->title(), "all_gather");
  EXPECT_THAT(gather->what, testing::MatchesRegex("all_gather #[0-9]+ over everyone"));
  EXPECT_EQ(gather->work.bytes, (n_ - 1) * 5003 * 4);
  EXPECT_LE(gather->begin, linear->begin);
  EXPECT_GE(gather->end, linear->end);
}

// ---------------------------------------------------------------- progress and timeouts

TEST_F(GroupTest, TwoThousandSmallOnes) {
  std::vector<at::Tensor> tensors;
  std::vector<Request> requests;
  for (int i = 0; i < 2000; ++i) {
    tensors.push_back(at::full({3}, double(rank_ + i)));
    requests.push_back(group_->all_reduce(tensors.back()));
    World::poll();
  }
  for (Request& request : requests) request.wait();
  for (int i = 0; i < 2000; ++i)
    ASSERT_EQ(tensors[size_t(i)][2].item<double>(), n_ * (n_ - 1) / 2.0 + n_ * i) << i;
}

TEST_F(GroupTest, AWaitBeyondTheTimeoutIsAnError) {
  if (n_ == 1) GTEST_SKIP() << "needs two ranks";
  CommConfig comm = test_comm();
  comm.timeout = 0.2;
  const auto late = everyone("late");
  if (rank_ > 0) {
    world(comm);
    const at::Tensor tensor = own(20011, at::kFloat);
    Request request = late->all_reduce(tensor);
    try {
      request.wait();
      ADD_FAILURE() << "no error";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("all_reduce #1 over late waited 0.2 s for rank 0"));
      EXPECT_THAT(error.what(), HasSubstr("(comm.timeout)\nlate: ranks 0"));
      EXPECT_THAT(error.what(),
                  HasSubstr("-> rank 0 has not issued #1 all_reduce(sum) of 20011 fp32, for which"));
    }
    world();
    group_->barrier();
    request.wait();  // the late one comes after all
    expect_same_bits(tensor, expected_sum(n_, 20011, at::kFloat));
  } else {
    group_->barrier();
    late->all_reduce(own(20011, at::kFloat)).wait();
  }
}

}  // namespace
}  // namespace weft
