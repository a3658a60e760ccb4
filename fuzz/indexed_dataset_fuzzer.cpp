#include <cstring>

#include "weft/data/indexed_dataset.h"

#include "fuzz/targets.h"
#include "tests/base/memory_env.h"

namespace weft::fuzz {

void indexed_dataset(std::string_view input) {
  uint16_t bin_bytes = 0;
  if (input.size() < sizeof bin_bytes) return;
  std::memcpy(&bin_bytes, input.data(), sizeof bin_bytes);
  input.remove_prefix(sizeof bin_bytes);
  const std::string bin(input.substr(0, bin_bytes)), idx(input.substr(bin.size()));
  MemoryEnv env({{"data.bin", bin}, {"data.idx", idx}});
  const IndexedDataset dataset("data", env);

  int64_t begin = 0;
  for (int64_t document = 0; document < dataset.documents(); ++document) {
    WEFT_ASSERT(dataset.document_begin(document) == begin, "document {}", document);
    const int64_t end = dataset.document_begin(document + 1);
    WEFT_ASSERT(end >= begin, "document {} ends at {}, before its begin {}", document, end, begin);
    std::vector<int64_t> tokens(size_t(end - begin));
    dataset.read(begin, tokens);
    begin = end;
  }
  WEFT_ASSERT(begin == dataset.tokens(), "the documents have {} tokens, the dataset {}", begin,
              dataset.tokens());
}

}  // namespace weft::fuzz
