// What a run directory tells of its run, read for people to look at.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/config.h"
#include "weft/base/env.h"
#include "weft/report/metrics.h"

namespace weft {

/// What one op took, summed over the run's steps (op_times.json).
struct OpTime {
  std::string op, kind, pass;  // "linear", "attention", "forward"
  double calls = 0, seconds = 0, flops = 0, bytes = 0;
};

struct OpTimes {
  double steps = 0, seconds = 0;  // of the whole; the ops may leave some of it unexplained
  std::vector<OpTime> ops;
};

struct SampledText {
  int64_t step = 0;
  std::string prompt, text;
};

struct RunRecord {
  std::string dir;
  std::string name;  // the directory's, or as much of its path as tells the runs apart
  std::vector<std::pair<std::string, std::string>>
      config;                    // "section.key", value as in TOML; in schema order
  std::set<std::string> chosen;  // keys whose value is not the default
  Metrics metrics;               // of one step at least
  std::vector<SampledText> samples;
  std::optional<OpTimes> op_times;  // none: not measured

  /// A key's value; "" if the config has no such key.
  std::string value(const std::string& key) const;
  int64_t last_step() const { return metrics.step.back(); }
};

/// A run's config; none if it has none that this version reads.
std::optional<Config> saved_config(Env& env, const std::string& run_dir);

std::vector<SampledText> read_samples(Env& env, const std::string& run_dir);

/// Throws one Error that lists every directory that is no run, has no metrics yet or is named twice.
std::vector<RunRecord> read_runs(Env& env, const std::vector<std::string>& dirs);

}  // namespace weft
