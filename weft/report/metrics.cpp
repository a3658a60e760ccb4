#include "weft/report/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "weft/base/error.h"
#include "weft/report/step_log.h"

namespace weft {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kMaxStep = int64_t(1) << 53;  // plots hold steps as doubles
constexpr double kMaxNumber = 1e100;            // beyond it the arithmetic of plots would overflow

void Metrics::add(const nlohmann::ordered_json& line) {
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) return;
  const auto at = line["step"].get<int64_t>();
  if (at < 0 || at > kMaxStep || (!step.empty() && at <= step.back())) return;
  step.push_back(at);
  const bool skips = line.contains("skipped") && line["skipped"].is_string();
  if (skips) skipped.emplace_back(at, line["skipped"].get<std::string>());
  stopped_early = line.contains("early_stop");
  for (const auto& [key, value] : line.items()) {
    if (!value.is_number() || key == "step" || (skips && (key == "loss" || key == "grad_norm"))) continue;
    std::vector<double>& column = columns[key];
    column.resize(step.size() - 1, kNone);
    const auto number = value.get<double>();
    column.push_back(std::abs(number) < kMaxNumber ? number : kNone);
  }
  for (auto& [key, column] : columns) column.resize(step.size(), kNone);
  const double seconds = columns.contains("step_s") ? columns["step_s"].back() : 0;
  hours.push_back((hours.empty() ? 0 : hours.back()) + (std::isfinite(seconds) ? seconds / 3600 : 0));
}

Points Metrics::points(const std::string& key, double factor) const {
  Points points;
  const auto found = columns.find(key);
  if (found == columns.end()) return points;
  for (size_t i = 0; i < step.size(); ++i)
    if (std::isfinite(found->second[i])) points.emplace_back(double(step[i]), factor * found->second[i]);
  return points;
}

std::optional<Points::value_type> Metrics::lowest(const std::string& key) const {
  const Points all = points(key);
  const auto low = std::ranges::min_element(all, {}, [](const auto& point) { return point.second; });
  return low == all.end() ? std::nullopt : std::optional(*low);
}

double Metrics::last(const std::string& key) const {
  const auto found = columns.find(key);
  if (found == columns.end()) return kNone;
  const auto& column = found->second;
  const auto value = std::find_if(column.rbegin(), column.rend(), [](double v) { return std::isfinite(v); });
  return value == column.rend() ? kNone : *value;
}

size_t Metrics::row_of(int64_t at) const {
  const auto found = std::lower_bound(step.begin(), step.end(), at);
  WEFT_ASSERT(found != step.end() && *found == at, "no step {}", at);
  return size_t(found - step.begin());
}

MetricsReader::MetricsReader(Env& env, const std::string& run_dir)
    : env_(env), path_(metrics_path(run_dir)) {}

bool MetricsReader::poll() {
  if (!env_.exists(path_)) return false;
  const auto file = env_.map(path_);
  const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  // A run that goes on from a checkpoint replaces the file by one that ends earlier, and may since have
  // written past the old end.
  const bool replaced =
      text.size() < read_ || text.substr(read_ - last_line_.size(), last_line_.size()) != last_line_;
  if (replaced) metrics_ = {}, read_ = 0, last_line_.clear();
  const size_t before = read_;
  for (size_t end; (end = text.find('\n', read_)) != std::string_view::npos; read_ = end + 1) {
    last_line_ = text.substr(read_, end + 1 - read_);
    metrics_.add(nlohmann::ordered_json::parse(last_line_, nullptr, /*allow_exceptions=*/false));
  }
  return replaced || read_ > before;
}

}  // namespace weft
