// The baseline that a language model has to beat: an interpolated bigram (Jelinek and Mercer, 1980, with the
// weights of Witten and Bell, 1991), counted on the training data:
//
//   p(w | h)  = L(h) c(h w) / c(h) + (1 - L(h)) p(w)
//   L(h)      = c(h) / (c(h) + k d(h)),  d(h) the number of different followers of h
//   p(w)      = (c(w) + 1/2) / (N + V/2)
//
// k is the best of a small grid ON THE VALIDATION DATA: that favours the baseline, so a margin over it is not
// flattered.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/data/sampler.h"

namespace weft {

struct BigramLoss {
  double nats = 0;  // mean per target token
  double k = 0;
};

/// Counts one pass over `train` (samples of seq_len + 1 tokens) and scores the targets of `windows`, each a
/// sequence of tokens of which all but the first are targets. Memory: 16 bytes per distinct pair, 24 per
/// word.
BigramLoss bigram_loss(const SampleSource& train, int64_t seq_len,
                       const std::vector<std::vector<int64_t>>& windows, int64_t vocab_size);

}  // namespace weft
