#include "weft/data/mock_data.h"

#include "weft/base/philox.h"

namespace weft {

void MockData::read(int64_t index, std::span<int64_t> out) const {
  constexpr uint32_t kMeanDocument = 24;  // tokens
  const auto length = int64_t(out.size());
  const bool has_prompt = index % 3 == 1;
  for (int64_t i = 0; i < length; ++i) {
    const auto bits = philox(seed_, uint64_t(i), uint64_t(index));
    int64_t& token = out[size_t(i)];
    token = bits[0] % kMeanDocument == 0 || vocab_size_ == 1 ? 0 : 1 + int64_t(bits[1] % (vocab_size_ - 1));
    if (has_prompt && i > length / 8 && i < length * 3 / 4) token = ~token;
  }
}

}  // namespace weft
