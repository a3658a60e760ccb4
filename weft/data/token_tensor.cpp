#include "weft/data/token_tensor.h"

#include <cstring>

#include "weft/base/batch_ramp.h"
#include "weft/base/error.h"

namespace weft {

TokenTensor::TokenTensor(const std::string& path, int64_t seq_len, int64_t vocab_size, Env& env)
    : file_(env, path) {
  const TensorInfo& info = file_.info("tokens");
  if (info.dtype != "I64" && info.dtype != "I32")
    fail("{}: tokens is {}, expected I64 or I32", path, info.dtype);
  if (info.shape.size() != 3 || info.shape[0] == 0 || info.shape[1] == 0) {
    fail("{}: tokens has shape [{}], expected [step, sequence, seq_len + 1]", path,
         fmt::join(info.shape, ", "));
  }
  data_ = file_.data("tokens");
  wide_ = info.dtype == "I64";
  steps_ = info.shape[0], sequences_ = info.shape[1], sample_tokens_ = info.shape[2];
  if (sample_tokens_ != seq_len + 1) {
    fail("{}: tokens has shape [{}]: rows of {} tokens suit train.seq_len = {}, not {}", path,
         fmt::join(info.shape, ", "), sample_tokens_, sample_tokens_ - 1, seq_len);
  }
  for (int64_t position = 0; position < size() * sample_tokens_; ++position) {
    if (token(position) >= 0 && token(position) < vocab_size) continue;
    const int64_t row = position / sample_tokens_;
    fail("{}: tokens[{}, {}, {}] is {}, outside the vocabulary of {}", path, row / sequences_,
         row % sequences_, position % sample_tokens_, token(position), vocab_size);
  }
}

void TokenTensor::check_training(const TrainConfig& train) const {
  if (train.batch_ramp_start > 0) {
    const uint64_t needed = samples_after(train, 0, train.steps);
    if (needed > uint64_t(size()))
      fail(
          "{}: holds {} sequences, and train.steps = {} steps of the batch-size ramp take {}: make "
          "train.steps smaller",
          file_.path(), size(), train.steps, needed);
    return;
  }
  if (train.global_batch != sequences_) {
    fail("{}: its steps have {} sequences: set train.global_batch to {}, not {}", file_.path(), sequences_,
         sequences_, train.global_batch);
  }
  if (train.steps > steps_) {
    fail("{}: holds {} steps: set train.steps to {} at most, not {}", file_.path(), steps_, steps_,
         train.steps);
  }
}

void TokenTensor::read(int64_t index, std::span<int64_t> out) const {
  WEFT_ASSERT(index >= 0 && index < size(), "sample {} of {}", index, size());
  WEFT_ASSERT(int64_t(out.size()) == sample_tokens_, "room for {} tokens, not {}", out.size(),
              sample_tokens_);
  for (size_t at = 0; at < out.size(); ++at) out[at] = token(index * sample_tokens_ + int64_t(at));
}

int64_t TokenTensor::token(int64_t position) const {
  int64_t value = 0;
  if (wide_) {
    std::memcpy(&value, data_.data() + position * 8, 8);
  } else {
    int32_t narrow = 0;
    std::memcpy(&narrow, data_.data() + position * 4, 4);
    value = narrow;
  }
  return value;
}

}  // namespace weft
