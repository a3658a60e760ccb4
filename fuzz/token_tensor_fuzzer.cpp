#include "weft/data/token_tensor.h"

#include "fuzz/safetensors_input.h"
#include "fuzz/targets.h"
#include "tests/base/memory_env.h"

namespace weft::fuzz {

void token_tensor(std::string_view input) {
  constexpr int64_t kSeqLen = 3, kVocabulary = 100;
  MemoryEnv env({{"tokens", safetensors_file(input)}});
  const TokenTensor source("tokens", kSeqLen, kVocabulary, env);
  std::vector<int64_t> sample(kSeqLen + 1);
  for (int64_t index = 0; index < source.size(); ++index) {
    source.read(index, sample);
    for (const int64_t token : sample)
      WEFT_ASSERT(token >= 0 && token < kVocabulary, "sample {} holds token {}", index, token);
  }
}

}  // namespace weft::fuzz
