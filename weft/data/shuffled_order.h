// The order of samples as a pure function of (data seed, global sample index): no list, no state, the same
// for any number of ranks. Each epoch is a permutation of [0, n): a Feistel network (Luby and Rackoff, "How
// to construct pseudorandom permutations from pseudorandom functions", 1988) with Philox as its round
// function, on the smallest even number of bits that holds n, walked in cycles until the result is below n
// (Black and Rogaway, 2002).
#pragma once

#include <cstdint>

namespace weft {

class ShuffledOrder {
 public:
  /// n >= 1 samples an epoch.
  ShuffledOrder(uint64_t seed, int64_t n);
  /// The sample, in [0, n), that comes at position `global_index` >= 0; epoch global_index / n.
  int64_t operator()(int64_t global_index) const;

 private:
  uint64_t seed_, n_;
  int half_bits_;
};

}  // namespace weft
