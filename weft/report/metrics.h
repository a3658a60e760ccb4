// metrics.jsonl by columns, read as far as the run has written it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "weft/base/env.h"
#include "weft/report/plot_scale.h"

namespace weft {

struct Metrics {
  std::vector<int64_t> step;  // ascending
  std::vector<double> hours;  // sum of step_s
  /// Each key's numbers, as long as `step`; NaN where a line has none. The loss and the gradient norm of a
  /// skipped step are left out, and so is what no plot could show: numbers from 1e100 on, steps beyond 2^53.
  std::map<std::string, std::vector<double>> columns;
  std::vector<std::pair<int64_t, std::string>> skipped;  // step, reason
  bool stopped_early = false;                            // after the last line

  /// (step, factor * value) of each number of a column that is finite; none if there is no such column.
  Points points(const std::string& key, double factor = 1) const;
  /// The last finite number of a column; NaN if there is none.
  double last(const std::string& key) const;
  /// (step, value) of a column's lowest number.
  std::optional<Points::value_type> lowest(const std::string& key) const;
  /// The row of a step that is there.
  size_t row_of(int64_t step) const;

  void add(const nlohmann::ordered_json& line);
};

/// Reads what a file has gained, line by line. A torn line is left out, the last one until it is whole.
class MetricsReader {
 public:
  MetricsReader(Env& env, const std::string& run_dir);

  /// Reads on; from the start if the run has been started again. Whether there is anything new.
  bool poll();

  const Metrics& metrics() const { return metrics_; }

 private:
  Env& env_;
  std::string path_;
  Metrics metrics_;
  size_t read_ = 0;        // bytes
  std::string last_line_;  // the end of these: still there unless the file was replaced
};

}  // namespace weft
