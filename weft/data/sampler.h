// Where training gets its token windows. A sample is seq_len + 1 tokens: inputs are the first seq_len,
// targets the last seq_len. Sample i of a split covers the tokens [i seq_len, i seq_len + seq_len + 1) of the
// split's documents laid end to end, so every token but the first is a target once (a rest shorter than
// seq_len is left out). Nothing is masked here: documents end with the tokenizer's end-of-text token. All
// reads are const, without state.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/base/config.h"
#include "weft/data/indexed_dataset.h"

namespace weft {

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  /// Samples in one pass over the data.
  virtual int64_t size() const = 0;
  /// Fills out [seq_len + 1] with the sample at global index `index` >= 0. Training sources of indexed data
  /// go on past size() with the next epoch; others end there. A token that is only input, no target, comes as
  /// ~token. Throws Error, with file and position, for a token id that is outside the vocabulary.
  virtual void read(int64_t index, std::span<int64_t> out) const = 0;
};

/// The source that `[data]` describes, for training: shuffled or in order, repeated without end; format =
/// "tensor": the file, in order, once. model.vocab_size must be filled in. Throws Error before any training
/// if the data cannot serve train.steps steps.
std::unique_ptr<SampleSource> open_train(const Config& config);

struct ValidationSource {
  std::string name;  // the end of its path, as short as tells it from the others': "books" or "books/valid"
  std::unique_ptr<SampleSource> samples;  // in order
};

/// The validation data, each dataset of data.valid for itself; empty if the config sets none apart.
std::vector<ValidationSource> open_valid(const Config& config);

/// Several datasets, laid end to end.
class TokenStream {
 public:
  explicit TokenStream(const std::vector<std::string>& prefixes, Env& env = Env::system());
  int64_t documents() const;
  int64_t tokens() const { return begin_.back(); }
  int64_t document_begin(int64_t document) const;  // as in IndexedDataset
  void read(int64_t first, std::span<int64_t> out) const;
  /// "PREFIX.bin, token 17", for errors.
  std::string place(int64_t token) const;

  /// Tokens that stay for training when the last round(fraction * documents) documents, at least one but
  /// never all, are kept for validation. A single document is split by tokens.
  int64_t train_tokens(double valid_fraction) const;

 private:
  size_t dataset_of(int64_t token) const;
  std::vector<std::unique_ptr<IndexedDataset>> datasets_;
  std::vector<int64_t> begin_;  // first token of each dataset, and the end
};

/// The samples of the tokens [begin, end) of a stream, in order.
class TokenSamples : public SampleSource {
 public:
  /// `name` is the split's, for errors. Throws Error if the tokens do not fill one sample.
  TokenSamples(std::shared_ptr<const TokenStream> stream, int64_t begin, int64_t end, int64_t seq_len,
               int64_t vocab_size, const std::string& name);
  int64_t size() const override { return size_; }
  void read(int64_t index, std::span<int64_t> out) const override;

 private:
  std::shared_ptr<const TokenStream> stream_;
  int64_t begin_, seq_len_, vocab_size_, size_;
};

}  // namespace weft
