#include "weft/data/bigram.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace weft {
namespace {

class Samples : public SampleSource {
 public:
  explicit Samples(std::vector<std::vector<int64_t>> samples) : samples_(std::move(samples)) {}
  int64_t size() const override { return int64_t(samples_.size()); }
  void read(int64_t index, std::span<int64_t> out) const override {
    std::ranges::copy(samples_[size_t(index)], out.begin());
  }

 private:
  std::vector<std::vector<int64_t>> samples_;
};

TEST(BigramTest, AgreesWithPencilAndPaper) {
  // Pairs of 0 1 0 2 0 1: (0,1) twice, (1,0), (0,2), (2,0). Targets: 0 twice, 1 twice, 2 once; V = 4.
  const Samples train({{0, 1, 0}, {0, 2, 0}, {0, 1, 3}});
  // With the last pair (1,3): c(0)=3, d(0)=2; c(1)=2, d(1)=2; c(2)=1, d(2)=1; N=6.
  const auto unigram = [](double count) { return (count + 0.5) / (6 + 0.5 * 4); };
  const auto nats = [&](double k) {
    const double lambda0 = 3 / (3 + 2 * k), lambda1 = 2 / (2 + 2 * k);
    const double p01 = lambda0 * 2 / 3 + (1 - lambda0) * unigram(2);
    const double p12 = (1 - lambda1) * unigram(1);
    const double p30 = unigram(2);  // 3 never came before anything
    return -(std::log(p01) + std::log(p12) + std::log(p30)) / 3;
  };
  const BigramLoss loss = bigram_loss(train, 2, {{0, 1, 2}, {3, 0}}, 4);
  double best = INFINITY, best_k = 0;
  for (double k : {0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0}) {
    if (nats(k) < best) best = nats(k), best_k = k;
  }
  EXPECT_NEAR(loss.nats, best, 1e-14);
  EXPECT_EQ(loss.k, best_k);
}

TEST(BigramTest, ProbabilitiesSumToOne) {
  std::mt19937 random(4);
  std::vector<std::vector<int64_t>> samples(20, std::vector<int64_t>(11));
  for (auto& sample : samples)
    for (int64_t& token : sample) token = random() % 7 * (random() % 2);
  const Samples train(samples);
  for (int64_t history = 0; history < 8; ++history) {
    double sum = 0;
    for (int64_t word = 0; word < 8; ++word) {
      // One target at a time; k is picked anew each time, so hold it fixed by scoring the target among many
      // others.
      std::vector<std::vector<int64_t>> windows(2000, {samples[0]});
      windows.push_back({history, word});
      const double with = bigram_loss(train, 10, windows, 8).nats * 20001;
      windows.pop_back();
      sum += std::exp(-(with - bigram_loss(train, 10, windows, 8).nats * 20000));
    }
    EXPECT_NEAR(sum, 1, 1e-6) << history;
  }
}

TEST(BigramTest, FindsTheEntropyOfAMarkovChain) {
  // From token t the chain goes to t + 1 with probability 3/4, else anywhere: entropy known in closed form.
  constexpr int64_t kVocab = 50, kSeqLen = 1000;
  std::mt19937 random(9);
  const auto draw = [&](size_t n) {
    std::vector<std::vector<int64_t>> samples(n, std::vector<int64_t>(kSeqLen + 1));
    for (auto& sample : samples) {
      for (size_t at = 1; at < sample.size(); ++at) {
        sample[at] = random() % 4 ? (sample[at - 1] + 1) % kVocab : random() % kVocab;
      }
    }
    return samples;
  };
  const double likely = 0.75 + 0.25 / kVocab, other = 0.25 / kVocab;
  const double entropy = -likely * std::log(likely) - (kVocab - 1) * other * std::log(other);
  const BigramLoss loss = bigram_loss(Samples(draw(1000)), kSeqLen, draw(100), kVocab);
  EXPECT_NEAR(loss.nats, entropy, 0.02);
}

}  // namespace
}  // namespace weft
