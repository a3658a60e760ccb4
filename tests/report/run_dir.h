// Run directories made by hand.
#pragma once

#include <functional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/config.h"
#include "weft/base/env.h"
#include "weft/report/step_log.h"

namespace weft {

inline void write_config(const std::string& dir, Config config) {
  resolve(&config);
  Env::system().create_dirs(dir);
  write_file_atomically(Env::system(), dir + "/config.toml", to_toml(config));
}

/// A step's line as a trainer writes it; the loss is 10 / step.
inline nlohmann::ordered_json metrics_line(int64_t step) {
  return {{"step", step},         {"loss", 10.0 / double(step)},
          {"grad_norm", 0.5},     {"lr", 1e-3},
          {"global_batch", 4},    {"tokens", 100 * step},
          {"tokens_per_s", 50.0}, {"step_s", 2.0},
          {"mfu", 0.25},          {"rss_mb", 300.0}};
}

/// A run of `steps` steps; `change` may alter each line.
inline void write_run(const std::string& dir, const Config& config, int64_t steps,
                      const std::function<void(nlohmann::ordered_json&)>& change = {}) {
  write_config(dir, config);
  StepLog log(Env::system(), metrics_path(dir), 0);
  for (int64_t step = 1; step <= steps; ++step) {
    auto line = metrics_line(step);
    if (change) change(line);
    log.append(line);
  }
}

inline void write_sample(const std::string& dir, int64_t step, const std::string& prompt,
                         const std::string& text) {
  StepLog log(Env::system(), samples_path(dir), step);
  log.append({{"step", step}, {"prompt", prompt}, {"text", text}});
}

}  // namespace weft
