// Collectives in shared buffers: the bits and the bytes of those that send messages.
#include "weft/comm/shared_memory.h"

#include <filesystem>
#include <numeric>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/comm/recordings.h"

#include "tests/mpi/inputs.h"
#include "tests/mpi/world.h"

namespace weft {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SharedMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    world();
    if (n_ < 2) GTEST_SKIP() << "needs two ranks";
  }

  /// The shared buffer that this rank's last operation was in; -1: it sent messages.
  int last_buffer() const {
    const std::string path = ring_path(record_dir() + "/comm", world().rank());
    return parse_recording(Env::system().read(path), path).records.back().buffer;
  }

  std::shared_ptr<Group> group_ = everyone("sharing");
  const int n_ = group_->size();
  const int rank_ = group_->rank();
};

TEST_F(SharedMemoryTest, ABufferIsZeroed) {
  const at::Tensor buffer = group_->new_buffer(10'007, at::kDouble);
  EXPECT_EQ(buffer.scalar_type(), at::kDouble);
  EXPECT_TRUE(buffer.equal(at::zeros({10'007}, at::kDouble)));
  EXPECT_EQ(group_->new_buffer(0, at::kFloat).numel(), 0);
}

TEST_F(SharedMemoryTest, CollectivesHaveTheBitsOfMessages) {
  for (const at::ScalarType dtype : kDtypes)
    for (const int64_t numel : {int64_t{1}, int64_t{13}, int64_t{20'011}, int64_t{100'003}})
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
        SCOPED_TRACE(testing::Message() << dtype << " [" << numel << "]");
        const at::Tensor buffer = group_->new_buffer(n_ * numel, dtype);
        const bool shared = int64_t(buffer.nbytes()) > 16 << 10;
        const at::Tensor sum = expected_sum(n_, n_ * numel, dtype, op);
        buffer.copy_(input_of(rank_, n_ * numel, dtype));
        group_->all_reduce(buffer, op).wait();
        expect_same_bits(buffer, sum);
        EXPECT_EQ(last_buffer() >= 0, shared);

        buffer.copy_(input_of(rank_, n_ * numel, dtype));
        const at::Tensor place = buffer.narrow(0, rank_ * numel, numel);
        group_->reduce_scatter(place, buffer, op).wait();
        expect_same_bits(place, sum.narrow(0, rank_ * numel, numel));
        EXPECT_EQ(last_buffer() >= 0, shared);

        group_->all_gather(buffer, place).wait();
        expect_same_bits(buffer, sum);
        EXPECT_EQ(last_buffer() >= 0, shared);
      }
}

TEST_F(SharedMemoryTest, InputsAndOutputsElsewhere) {
  const int64_t numel = 20'011;
  const at::Tensor buffer = group_->new_buffer(n_ * numel, at::kFloat), piece = at::zeros({numel});
  buffer.copy_(input_of(rank_, n_ * numel, at::kFloat));
  group_->reduce_scatter(piece, buffer).wait();
  expect_same_bits(piece, expected_sum(n_, n_ * numel, at::kFloat).narrow(0, rank_ * numel, numel));
  group_->all_gather(buffer, piece).wait();
  expect_same_bits(buffer, expected_sum(n_, n_ * numel, at::kFloat));
  EXPECT_GE(last_buffer(), 0);
}

TEST_F(SharedMemoryTest, PartsOfABufferAtOnce) {
  const int64_t numel = 20'011, begins[] = {3, 3 + numel, 3 + 2 * numel};
  const at::Tensor buffer = group_->new_buffer(4 * numel, at::kFloat);
  std::vector<Request> requests;
  for (const int64_t begin : begins) {
    const at::Tensor part = buffer.narrow(0, begin, numel);
    part.copy_(input_of(rank_, numel, at::kFloat));
    requests.push_back(group_->all_reduce(part));
  }
  for (int i = 0; i < 3; ++i) requests[size_t((i + rank_) % 3)].wait();  // each rank in another order
  for (const int64_t begin : begins)
    expect_same_bits(buffer.narrow(0, begin, numel), expected_sum(n_, numel, at::kFloat));
  EXPECT_TRUE(buffer.narrow(0, 0, 3).equal(at::zeros({3})));
  EXPECT_TRUE(buffer.narrow(0, 3 + 3 * numel, numel - 3).equal(at::zeros({numel - 3})));
}

// Ranks run ahead of each other as far as the operations let them.
TEST_F(SharedMemoryTest, ManyInTheSameTwoBuffers) {
  const int64_t numel = 5'000 * n_;
  const at::Tensor buffers[] = {group_->new_buffer(numel, at::kLong), group_->new_buffer(numel, at::kLong)};
  Request under_way[2];
  int64_t expected[2] = {};
  for (int round = 0; round < 300; ++round) {
    const int which = round % 2;
    under_way[which].wait();
    ASSERT_TRUE(buffers[which].eq(expected[which]).all().item<bool>()) << round;
    buffers[which].fill_(rank_ + round);
    expected[which] = n_ * (n_ - 1) / 2 + n_ * round;
    if (round % 3 == 0) {
      const at::Tensor own = buffers[which].narrow(0, rank_ * 5'000, 5'000);
      group_->reduce_scatter(own, buffers[which]).wait();
      under_way[which] = group_->all_gather(buffers[which], own);
    } else {
      under_way[which] = group_->all_reduce(buffers[which]);
    }
  }
  for (Request& request : under_way) request.wait();
}

TEST_F(SharedMemoryTest, TheBytesOfMessages) {
  const int64_t numel = 12 * 5'003;  // divides by 2, 3 and 4 ranks
  const at::Tensor buffer = group_->new_buffer(numel, at::kFloat);
  const at::Tensor own = buffer.narrow(0, rank_ * numel / n_, numel / n_);
  const CommTotals before = World::totals();
  group_->all_reduce(buffer).wait();
  group_->reduce_scatter(own, buffer).wait();
  group_->all_gather(buffer, own).wait();
  EXPECT_GE(last_buffer(), 0);
  const CommTotals added = World::totals() - before;
  EXPECT_EQ(added.size(), 3u);
  EXPECT_EQ(added.at({"sharing", "all_reduce"}).bytes, 2 * (n_ - 1) * numel / n_ * 4);
  EXPECT_EQ(added.at({"sharing", "reduce_scatter"}).bytes, (n_ - 1) * numel / n_ * 4);
  EXPECT_EQ(added.at({"sharing", "all_gather"}).bytes, (n_ - 1) * numel / n_ * 4);
}

TEST_F(SharedMemoryTest, OfAnotherGroupOrSwitchedOff) {
  const at::Tensor buffer = group_->new_buffer(20'011, at::kFloat);
  const auto other = everyone("other");
  other->all_reduce(buffer.fill_(1)).wait();
  EXPECT_EQ(last_buffer(), -1);
  EXPECT_TRUE(buffer.equal(at::full({20'011}, double(n_))));

  CommConfig comm = test_comm();
  comm.shared_memory = false;
  world(comm);
  group_->all_reduce(group_->new_buffer(20'011, at::kFloat)).wait();
  EXPECT_EQ(last_buffer(), -1);
  world();
}

TEST_F(SharedMemoryTest, GivenBack) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_files();
  for (int i = 0; i < 50; ++i) {
    const at::Tensor buffer = group_->new_buffer(20'011, at::kFloat);
    group_->all_reduce(buffer.fill_(rank_)).wait();
    ASSERT_EQ(buffer[7].item<double>(), n_ * (n_ - 1) / 2);
  }
  EXPECT_EQ(open_files(), before);
}

TEST_F(SharedMemoryTest, AWaitBeyondTheTimeoutNamesTheLateRank) {
  const at::Tensor buffer = group_->new_buffer(20'011, at::kFloat).fill_(1);
  CommConfig comm = test_comm();
  comm.check = false;  // which would wait for messages first
  const auto late = everyone("late for sharing");
  if (rank_ > 0) comm.timeout = 0.2;
  world(comm);
  if (rank_ == 0) late->barrier();
  Request request = group_->all_reduce(buffer);
  if (rank_ > 0) {
    try {
      request.wait();
      ADD_FAILURE() << "no error";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("over sharing waited 0.2 s for rank 0 (comm.timeout)"),
                                      HasSubstr("-> rank 0 has not issued"),
                                      HasSubstr("all_reduce(sum) of 20011 fp32 in shared buffer 0")));
    }
    comm.timeout = 60;
    world(comm);
    late->barrier();
  }
  request.wait();  // the late one comes after all
  world();
  EXPECT_TRUE(buffer.equal(at::full({20'011}, double(n_))));
}

TEST_F(SharedMemoryTest, CheckTellsABufferFromAnother) {
  const at::Tensor buffers[] = {group_->new_buffer(20'011, at::kFloat),
                                group_->new_buffer(20'011, at::kFloat)};
  const bool last = rank_ == n_ - 1;
  try {
    group_->all_reduce(buffers[last ? 1 : 0]).wait();
    FAIL() << "no error";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("all_reduce(sum) of 20011 fp32 in shared buffer 0, but rank "),
                      HasSubstr("all_reduce(sum) of 20011 fp32 in shared buffer 1 (comm.check)")));
  }
}

TEST(SharedMemoryAlone, IsFoundByItsAddress) {
  SharedMemory::Address address;
  std::string problem;
  const auto made = SharedMemory::create(3, 10'000, &address);
  const auto found = SharedMemory::open(address, 3, 10'000, &problem);
  ASSERT_TRUE(found) << problem;
  for (int rank = 0; rank < 3; ++rank) made->buffer(rank)[9'999] = char('a' + rank);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(found->buffer(rank)[9'999], 'a' + rank);
  EXPECT_EQ(found->buffer(0)[0], 0);

  SharedMemory::Address other = address;
  other.key += 1;
  EXPECT_FALSE(SharedMemory::open(other, 3, 10'000, &problem));
  EXPECT_THAT(problem, HasSubstr("/fd/" + std::to_string(address.descriptor) + ": it is another process's"));
  problem.clear();
  std::strcpy(other.host, "another-machine");
  EXPECT_FALSE(SharedMemory::open(other, 3, 10'000, &problem));
  EXPECT_EQ(problem, "") << "nothing is wrong: it is on another machine";
  made->stop_sharing();
  EXPECT_FALSE(SharedMemory::open(address, 3, 10'000, &problem));
  EXPECT_NE(problem, "");
  EXPECT_EQ(found->buffer(2)[9'999], 'c') << "what is mapped stays";
}

}  // namespace
}  // namespace weft
