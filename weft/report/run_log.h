// What a run leaves behind as it goes: metrics.jsonl, samples.jsonl and TensorBoard's event files.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "weft/base/config.h"
#include "weft/base/env.h"
#include "weft/report/step_log.h"
#include "weft/report/tensorboard.h"

namespace weft {

class RunLog {
 public:
  /// Opens the files of a run that goes on after `last_step`, and drops what they say of later steps. A write
  /// that fails later does not end the run: `warn` is told, once for each file until it works again.
  RunLog(Env& env, const Config& config, int64_t last_step, std::function<void(const std::string&)> warn);

  void metrics(const nlohmann::ordered_json& line);  // has "step"
  void sample(int64_t step, size_t prompt_index, const std::string& prompt, const std::string& text);

 private:
  void attempt(bool* failed, const std::function<void()>& write);

  std::function<void(const std::string&)> warn_;
  StepLog metrics_, samples_;
  std::optional<EventFile> events_;
  bool metrics_failed_ = false, samples_failed_ = false, events_failed_ = false;
};

}  // namespace weft
