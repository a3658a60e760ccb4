#include "weft/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "weft/base/distinct_names.h"
#include "weft/base/error.h"
#include "weft/data/mock_data.h"
#include "weft/data/shuffled_order.h"
#include "weft/data/token_tensor.h"

namespace weft {
namespace {

/// A pass over `source` again and again, each in an order of its own if there is a seed to shuffle by.
class Epochs : public SampleSource {
 public:
  Epochs(std::unique_ptr<SampleSource> source, uint64_t seed, bool shuffle)
      : source_(std::move(source)), order_(seed, source_->size()), shuffle_(shuffle) {}
  int64_t size() const override { return source_->size(); }
  void read(int64_t index, std::span<int64_t> out) const override {
    source_->read(shuffle_ ? order_(index) : index % size(), out);
  }

 private:
  std::unique_ptr<SampleSource> source_;
  ShuffledOrder order_;
  bool shuffle_;
};

std::unique_ptr<TokenSamples> samples(const Config& config, std::shared_ptr<const TokenStream> stream,
                                      int64_t begin, int64_t end, const std::string& name) {
  return std::make_unique<TokenSamples>(std::move(stream), begin, end, config.train.seq_len,
                                        config.model.vocab_size, name);
}

// How many of the training data's tokens are not kept for validation.
int64_t train_end(const Config& config, const TokenStream& stream) {
  return config.data.valid.empty() ? stream.train_tokens(config.data.valid_fraction) : stream.tokens();
}

}  // namespace

std::unique_ptr<SampleSource> open_train(const Config& config) {
  WEFT_ASSERT(config.model.vocab_size > 0, "the config is not resolved");
  if (config.data.format == "mock")
    return std::make_unique<MockData>(uint64_t(config.data.seed), config.model.vocab_size);
  WEFT_ASSERT(!config.data.train.empty(), "the config is not resolved");
  if (config.data.format == "tensor") {
    auto tensor =
        std::make_unique<TokenTensor>(config.data.train[0], config.train.seq_len, config.model.vocab_size);
    tensor->check_training(config.train);
    return tensor;
  }
  const auto stream = std::make_shared<TokenStream>(config.data.train);
  const char* name = config.data.valid.empty() ? "the training part of data.train" : "data.train";
  return std::make_unique<Epochs>(samples(config, stream, 0, train_end(config, *stream), name),
                                  uint64_t(config.data.seed), config.data.shuffle);
}

std::vector<ValidationSource> open_valid(const Config& config) {
  WEFT_ASSERT(config.model.vocab_size > 0, "the config is not resolved");
  if (config.data.format == "mock") {
    std::vector<ValidationSource> mock(1);
    mock[0] = {"mock", std::make_unique<MockData>(uint64_t(config.data.seed) + 1, config.model.vocab_size)};
    return mock;
  }
  const auto& paths = config.data.valid;
  std::vector<ValidationSource> sources;
  const std::vector<std::string> names = distinct_names(paths);
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string& path = paths[i];
    sources.push_back({names[i], nullptr});
    if (config.data.format == "tensor") {
      sources.back().samples =
          std::make_unique<TokenTensor>(path, config.train.seq_len, config.model.vocab_size);
      continue;
    }
    const auto stream = std::make_shared<TokenStream>(std::vector{path});
    sources.back().samples = samples(config, stream, 0, stream->tokens(), "data.valid = " + path);
  }
  if (paths.empty() && config.data.format == "indexed" && config.data.valid_fraction > 0) {
    const auto stream = std::make_shared<TokenStream>(config.data.train);
    sources.push_back({"valid", samples(config, stream, train_end(config, *stream), stream->tokens(),
                                        "the validation part of data.train (data.valid_fraction)")});
  }
  return sources;
}

TokenStream::TokenStream(const std::vector<std::string>& prefixes, Env& env) : begin_{0} {
  for (const std::string& prefix : prefixes) {
    datasets_.push_back(std::make_unique<IndexedDataset>(prefix, env));
    begin_.push_back(begin_.back() + datasets_.back()->tokens());
  }
}

int64_t TokenStream::documents() const {
  int64_t sum = 0;
  for (const auto& dataset : datasets_) sum += dataset->documents();
  return sum;
}

int64_t TokenStream::document_begin(int64_t document) const {
  for (size_t at = 0; at < datasets_.size(); ++at) {
    if (document < datasets_[at]->documents()) return begin_[at] + datasets_[at]->document_begin(document);
    document -= datasets_[at]->documents();
  }
  WEFT_ASSERT(document == 0, "document past the end by {}", document);
  return tokens();
}

// The last dataset that begins at or before the token, so that empty ones are passed over.
size_t TokenStream::dataset_of(int64_t token) const {
  WEFT_ASSERT(token >= 0 && token < tokens(), "token {} of {}", token, tokens());
  return size_t(std::ranges::upper_bound(begin_, token) - begin_.begin()) - 1;
}

void TokenStream::read(int64_t first, std::span<int64_t> out) const {
  while (!out.empty()) {
    const size_t at = dataset_of(first);
    const auto n = std::min<int64_t>(int64_t(out.size()), begin_[at + 1] - first);
    datasets_[at]->read(first - begin_[at], out.first(size_t(n)));
    first += n;
    out = out.subspan(size_t(n));
  }
}

std::string TokenStream::place(int64_t token) const {
  const size_t at = dataset_of(token);
  return fmt::format("{}.bin, token {}", datasets_[at]->prefix(), token - begin_[at]);
}

int64_t TokenStream::train_tokens(double valid_fraction) const {
  if (valid_fraction == 0) return tokens();
  const int64_t n = documents();
  if (n < 2) return tokens() - std::llround(valid_fraction * double(tokens()));
  const int64_t valid = std::clamp<int64_t>(std::llround(valid_fraction * double(n)), 1, n - 1);
  return document_begin(n - valid);
}

TokenSamples::TokenSamples(std::shared_ptr<const TokenStream> stream, int64_t begin, int64_t end,
                           int64_t seq_len, int64_t vocab_size, const std::string& name)
    : stream_(std::move(stream)), begin_(begin), seq_len_(seq_len), vocab_size_(vocab_size) {
  const int64_t tokens = end - begin;
  size_ = std::max<int64_t>(tokens - 1, 0) / seq_len;
  if (size_ > 0) return;
  if (tokens < 2) fail("{} has {} tokens: it needs more text", name, tokens);
  fail(
      "{} has {} tokens, but one sample takes train.seq_len + 1 = {}: give it more text, or set "
      "train.seq_len to {} at most",
      name, tokens, seq_len + 1, tokens - 1);
}

void TokenSamples::read(int64_t index, std::span<int64_t> out) const {
  WEFT_ASSERT(index >= 0 && index < size_, "sample {} of {}", index, size_);
  WEFT_ASSERT(int64_t(out.size()) == seq_len_ + 1, "room for {} tokens, not {}", out.size(), seq_len_ + 1);
  const int64_t first = begin_ + index * seq_len_;
  stream_->read(first, out);
  for (size_t at = 0; at < out.size(); ++at) {
    if (out[at] >= 0 && out[at] < vocab_size_) continue;
    fail("{}: id {} is outside the vocabulary of {}: was the data built with another tokenizer?",
         stream_->place(first + int64_t(at)), out[at], vocab_size_);
  }
}

}  // namespace weft
