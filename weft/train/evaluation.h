// Evaluation on the validation data: each source for itself, and all together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/config.h"
#include "weft/comm/mesh_groups.h"
#include "weft/data/sampler.h"
#include "weft/nn/decoder.h"
#include "weft/optim/weight_average.h"
#include "weft/train/batch.h"

namespace weft {

/// Mean losses per target token, in nats.
struct Evaluation {
  double loss = 0;                                      // over the targets of all sources together
  std::vector<std::pair<std::string, double>> sources;  // of each, where there are several
  std::optional<double> ema_loss;                       // of the weights' average, where one is kept
};

/// "validation loss 3.1416  (books 3.0000, web 3.2832)  with EMA weights 3.1000"
std::string to_string(const Evaluation& evaluation);

class Evaluator {
 public:
  /// Of each source the first train.eval_sequences sequences count (0: all). The data ranks of `groups` share
  /// them, as `options` says.
  Evaluator(const Config& config, std::vector<ValidationSource> sources, const BatchOptions& options,
            MeshGroups& groups);

  bool has_data() const { return !sources_.empty(); }
  int64_t available() const;  // sequences of all sources, evaluated or not

  /// `average`: null if none is kept. Throws Error for damaged data, on all ranks; the weights then still are
  /// the model's.
  Evaluation evaluate(Decoder& decoder, WeightAverage* average) const;

  /// The tokens [seq_len + 1] of every sequence that counts, for a baseline.
  std::vector<std::vector<int64_t>> windows() const;

 private:
  struct Sum {
    double loss = 0, targets = 0;
    double mean() const { return targets > 0 ? loss / targets : 0; }
  };
  int64_t sequences(const SampleSource& source) const;
  Sum loss(const SampleSource& source, Decoder& decoder) const;
  double loss(Decoder& decoder, std::vector<std::pair<std::string, double>>* of_sources) const;

  std::vector<ValidationSource> sources_;
  BatchOptions options_;
  int64_t eval_sequences_, loss_chunk_;
  MeshGroups& groups_;
};

}  // namespace weft
