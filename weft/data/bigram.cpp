#include "weft/data/bigram.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr double kGrid[] = {0.125, 0.25, 0.5, 1, 2, 4, 8, 16};

struct PairCount {
  uint64_t pair;
  int64_t count;
};

/// Counts pairs by sorting them, a block at a time.
class PairCounter {
 public:
  void add(uint64_t pair) {
    block_.push_back(pair);
    if (block_.size() == kBlock) fold();
  }

  /// Ascending by pair.
  const std::vector<PairCount>& counts() {
    fold();
    return counts_;
  }

 private:
  static constexpr size_t kBlock = 1 << 22;

  void fold() {
    std::ranges::sort(block_);
    std::vector<PairCount> merged;
    merged.reserve(counts_.size());
    const auto add_count = [&](uint64_t pair, int64_t count) {
      if (merged.empty() || merged.back().pair != pair) merged.push_back({pair, 0});
      merged.back().count += count;
    };
    size_t at = 0;
    for (uint64_t pair : block_) {
      while (at < counts_.size() && counts_[at].pair <= pair) {
        add_count(counts_[at].pair, counts_[at].count);
        ++at;
      }
      add_count(pair, 1);
    }
    for (; at < counts_.size(); ++at) add_count(counts_[at].pair, counts_[at].count);
    counts_ = std::move(merged);
    block_.clear();
  }

  std::vector<uint64_t> block_;
  std::vector<PairCount> counts_;
};

uint64_t pair_of(int64_t history, int64_t word) { return uint64_t(history) << 32 | uint64_t(word); }

struct Counts {
  std::vector<int64_t> word, history, followers;
  int64_t total = 0;
  std::vector<PairCount> pairs;

  int64_t pair(int64_t h, int64_t w) const {
    const auto found = std::ranges::lower_bound(pairs, pair_of(h, w), {}, &PairCount::pair);
    return found != pairs.end() && found->pair == pair_of(h, w) ? found->count : 0;
  }
};

Counts count(const SampleSource& train, int64_t seq_len, int64_t vocab_size) {
  Counts counts;
  for (auto* table : {&counts.word, &counts.history, &counts.followers}) table->resize(size_t(vocab_size));
  PairCounter pairs;
  std::vector<int64_t> sample(size_t(seq_len) + 1);
  for (int64_t index = 0; index < train.size(); ++index) {
    train.read(index, sample);
    for (size_t at = 1; at < sample.size(); ++at) {
      ++counts.word[sample[at]];
      ++counts.history[sample[at - 1]];
      pairs.add(pair_of(sample[at - 1], sample[at]));
    }
    counts.total += seq_len;
  }
  counts.pairs = pairs.counts();
  for (const PairCount& pair : counts.pairs) ++counts.followers[pair.pair >> 32];
  return counts;
}

/// What the probability of one target depends on, but for k.
struct Target {
  double pair, history, followers, unigram;
};

double mean_nats(const std::vector<Target>& targets, double k) {
  double sum = 0;
  for (const Target& t : targets) {
    // c(h w) / (c(h) + k d(h)) is L(h) times the maximum likelihood estimate; an unseen history has L = 0.
    const double norm = t.history + k * t.followers;
    const double p = norm > 0 ? t.pair / norm + k * t.followers / norm * t.unigram : t.unigram;
    sum -= std::log(p);
  }
  return sum / double(targets.size());
}

}  // namespace

BigramLoss bigram_loss(const SampleSource& train, int64_t seq_len,
                       const std::vector<std::vector<int64_t>>& windows, int64_t vocab_size) {
  const Counts counts = count(train, seq_len, vocab_size);
  std::vector<Target> targets;
  for (const auto& window : windows) {
    for (size_t at = 1; at < window.size(); ++at) {
      const int64_t h = window[at - 1], w = window[at];
      targets.push_back({double(counts.pair(h, w)), double(counts.history[h]), double(counts.followers[h]),
                         (double(counts.word[w]) + 0.5) / (double(counts.total) + 0.5 * double(vocab_size))});
    }
  }
  WEFT_ASSERT(!targets.empty(), "no targets to score");
  BigramLoss best{mean_nats(targets, kGrid[0]), kGrid[0]};
  for (double k : kGrid) {
    const double nats = mean_nats(targets, k);
    if (nats < best.nats) best = {nats, k};
  }
  return best;
}

}  // namespace weft
