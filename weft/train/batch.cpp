#include "weft/train/batch.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "weft/base/trace.h"
#include "weft/ops/cross_entropy.h"

namespace weft {
namespace {

MicroBatch make_micro_batch(const SampleSource& source, int64_t first, int64_t count, int64_t index_base,
                            const BatchOptions& options) {
  const int64_t length = options.seq_len, tokens = count * length;
  const auto column = [&] { return at::empty({tokens}, at::kLong); };
  MicroBatch batch{column(), column(), column(), at::arange(index_base, index_base + tokens, at::kLong), {}};
  int64_t* token = batch.tokens.data_ptr<int64_t>();
  int64_t* label = batch.labels.data_ptr<int64_t>();
  int64_t* position = batch.positions.data_ptr<int64_t>();
  std::vector<int64_t> window(size_t(length) + 1);
  for (int64_t s = 0; s < count; ++s) {
    source.read(first + s, window);
    for (int64_t i = 0; i < length; ++i) {
      const int64_t t = s * length + i;
      const int64_t input = window[size_t(i)];
      token[t] = input < 0 ? ~input : input;
      const int64_t target = window[size_t(i) + 1];
      label[t] = target < 0 ? kIgnoredLabel : target;
      const bool opens = i == 0 || token[t] == options.separator;
      position[t] = opens ? 0 : position[t - 1] + 1;
      if (opens) batch.cu_seqlens.push_back(t);
    }
  }
  batch.cu_seqlens.push_back(tokens);
  return batch;
}

/// The samples [begin, end) of each of this rank's micro-batches, of `count` that all ranks share. Every rank
/// has as many of them; the last ones may be empty.
std::vector<std::pair<int64_t, int64_t>> shares(int64_t count, const BatchOptions& options) {
  const auto bound = [&](int64_t rank) { return count * rank / options.data_ranks; };
  const int64_t begin = bound(options.data_rank), end = bound(options.data_rank + 1);
  const auto divided_by = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t most = divided_by(divided_by(count, options.data_ranks), options.micro_batch);
  std::vector<std::pair<int64_t, int64_t>> all;
  for (int64_t i = 0; i < most; ++i) {
    const int64_t from = std::min(begin + i * options.micro_batch, end);
    all.emplace_back(from, std::min(from + options.micro_batch, end));
  }
  return all;
}

/// One token without a target.
MicroBatch nothing_to_learn() { return micro_batch_of_rows(at::zeros({1, 1}, at::kLong)); }

}  // namespace

std::vector<MicroBatch> make_micro_batches(const SampleSource& source, int64_t first, int64_t count,
                                           const BatchOptions& options) {
  const Span span(SpanLevel::phase, "read_batch", SpanKind::data);
  std::vector<MicroBatch> batches;
  for (const auto& [begin, end] : shares(count, options))
    batches.push_back(
        begin < end ? make_micro_batch(source, first + begin, end - begin, begin * options.seq_len, options)
                    : nothing_to_learn());
  return batches;
}

std::vector<int64_t> micro_batch_tokens(int64_t count, const BatchOptions& options) {
  std::vector<int64_t> tokens;
  for (const auto& [begin, end] : shares(count, options))
    tokens.push_back(begin < end ? (end - begin) * options.seq_len : 1);
  return tokens;
}

int64_t count_targets(const std::vector<MicroBatch>& batches) {
  int64_t targets = 0;
  for (const MicroBatch& batch : batches) targets += (batch.labels >= 0).sum().item<int64_t>();
  return targets;
}

}  // namespace weft
