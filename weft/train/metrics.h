// metrics.jsonl: one JSON object a step, appended as the step ends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "weft/base/env.h"

namespace weft {

class MetricsFile {
 public:
  /// Opens RUN/metrics.jsonl and drops what lies after `last_step`: lines of steps that a restart will run
  /// again, and a line torn by a crash.
  MetricsFile(Env& env, const std::string& run_dir, int64_t last_step);

  void append(const nlohmann::ordered_json& line);

 private:
  std::unique_ptr<WritableFile> file_;
};

/// The lines of RUN/metrics.jsonl up to `last_step`, or to the first that is torn; none if there is no file.
std::vector<nlohmann::ordered_json> read_metrics(Env& env, const std::string& run_dir, int64_t last_step);

}  // namespace weft
