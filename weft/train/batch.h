// From samples to flat micro-batches.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/data/sampler.h"
#include "weft/nn/micro_batch.h"

namespace weft {

struct BatchOptions {
  int64_t seq_len = 0;
  int64_t micro_batch = 1;  // sequences per micro-batch; the last one of a batch may be shorter
  int64_t separator = -1;   // the token that opens a document (end of text); -1: none
  int64_t data_rank = 0;    // of so many ranks that share the sequences among them
  int64_t data_ranks = 1;
};

/// This rank's share of sequences [first, first + count) of `source` as micro-batches, as many on every rank:
/// one without sequences of its own gets a token without a target. A sequence is seq_len inputs, each
/// labelled with the token behind it. A separator opens the document behind it: it still is the label of the
/// token before, but starts positions and attention anew, so a model prompted with it alone begins a
/// document.
std::vector<MicroBatch> make_micro_batches(const SampleSource& source, int64_t first, int64_t count,
                                           const BatchOptions& options);

/// How many tokens each of them has.
std::vector<int64_t> micro_batch_tokens(int64_t count, const BatchOptions& options);

/// Labels that are not ignored.
int64_t count_targets(const std::vector<MicroBatch>& batches);

}  // namespace weft
