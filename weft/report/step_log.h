// Files of one JSON object a line, each with its "step", appended while a run goes on: RUN/metrics.jsonl and
// RUN/samples.jsonl.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "weft/base/env.h"

namespace weft {

class StepLog {
 public:
  /// Opens `path` and drops what lies after `last_step`: lines of steps that a restart will run again, and a
  /// line torn by a crash.
  StepLog(Env& env, const std::string& path, int64_t last_step);

  /// Numbers keep every digit; one that is not finite becomes null, bytes that are not UTF-8 become U+FFFD.
  void append(const nlohmann::ordered_json& line);

 private:
  std::unique_ptr<WritableFile> file_;
  bool torn_ = false;  // the last line was cut short, by a full disk
};

/// The whole lines up to `last_step`; torn ones are left out. None if there is no file.
std::vector<nlohmann::ordered_json> read_step_log(Env& env, const std::string& path,
                                                  int64_t last_step = std::numeric_limits<int64_t>::max());

inline std::string metrics_path(const std::string& run_dir) { return run_dir + "/metrics.jsonl"; }
inline std::string samples_path(const std::string& run_dir) { return run_dir + "/samples.jsonl"; }

}  // namespace weft
