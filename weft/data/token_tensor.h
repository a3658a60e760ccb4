// data.format = "tensor": a safetensors file whose tensor `tokens` (I64 or I32) [step, sequence, seq_len + 1]
// gives each step's batch as it is, in order. For tests and for comparing runs between tools.
#pragma once

#include "weft/base/safetensors.h"
#include "weft/data/sampler.h"

namespace weft {

class TokenTensor : public SampleSource {
 public:
  /// Throws Error if the shape does not suit seq_len, or if any id is outside [0, vocab_size): with its
  /// position.
  TokenTensor(const std::string& path, int64_t seq_len, int64_t vocab_size, Env& env = Env::system());
  /// Throws Error unless the file holds train.steps steps of global_batch sequences; with a batch-size ramp,
  /// whose steps do not follow the file's, as many sequences as the steps take together.
  void check_training(const TrainConfig& train) const;

  int64_t size() const override { return steps_ * sequences_; }
  /// Sample step * sequences + sequence.
  void read(int64_t index, std::span<int64_t> out) const override;

 private:
  int64_t token(int64_t position) const;
  SafetensorsFile file_;
  std::span<const std::byte> data_;
  bool wide_ = false;  // I64
  int64_t steps_ = 0, sequences_ = 0, sample_tokens_ = 0;
};

}  // namespace weft
