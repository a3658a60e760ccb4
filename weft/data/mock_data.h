// data.format = "mock": no files. Sample i is f(data.seed, i): documents of random lengths, each opened by
// token 0, of tokens that are drawn evenly; in every third sample a long stretch is input only, as a prompt
// is. For tests, and for measuring speed without data.
#pragma once

#include "weft/data/sampler.h"

namespace weft {

class MockData : public SampleSource {
 public:
  MockData(uint64_t seed, int64_t vocab_size) : seed_(seed), vocab_size_(vocab_size) {}
  int64_t size() const override { return 1'000'000; }
  void read(int64_t index, std::span<int64_t> out) const override;

 private:
  uint64_t seed_;
  int64_t vocab_size_;
};

}  // namespace weft
