#include "weft/data/shuffled_order.h"

#include <bit>

#include "weft/base/error.h"
#include "weft/base/philox.h"

namespace weft {
namespace {
constexpr uint64_t kRounds = 8;
}

ShuffledOrder::ShuffledOrder(uint64_t seed, int64_t n)
    : seed_(seed), n_(uint64_t(n)), half_bits_((std::bit_width(uint64_t(n) - 1) + 1) / 2) {
  WEFT_ASSERT(n >= 1, "an order of {} samples", n);
}

int64_t ShuffledOrder::operator()(int64_t global_index) const {
  const uint64_t epoch = uint64_t(global_index) / n_, mask = (uint64_t(1) << half_bits_) - 1;
  uint64_t x = uint64_t(global_index) % n_;
  do {  // still a bijection on [0, n): each cycle of the network is followed to its next member below n
    uint64_t left = x >> half_bits_, right = x & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (philox(seed_, round << 32 | right, epoch)[0] & mask);
      left = right, right = mixed;
    }
    x = left << half_bits_ | right;
  } while (x >= n_);
  return int64_t(x);
}

}  // namespace weft
