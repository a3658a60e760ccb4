#include "weft/train/metrics.h"

#include <sstream>

namespace weft {
namespace {

std::string metrics_path(const std::string& run_dir) { return run_dir + "/metrics.jsonl"; }

}  // namespace

std::vector<nlohmann::ordered_json> read_metrics(Env& env, const std::string& run_dir, int64_t last_step) {
  std::vector<nlohmann::ordered_json> lines;
  if (!env.exists(metrics_path(run_dir))) return lines;
  std::istringstream file(env.read(metrics_path(run_dir)));
  for (std::string text; std::getline(file, text);) {
    auto line = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !line.contains("step") || line["step"] > last_step) break;
    lines.push_back(std::move(line));
  }
  return lines;
}

MetricsFile::MetricsFile(Env& env, const std::string& run_dir, int64_t last_step) {
  std::string kept;
  for (const auto& line : read_metrics(env, run_dir, last_step)) kept += line.dump() + "\n";
  write_file_atomically(env, metrics_path(run_dir), kept);
  file_ = env.open_append(metrics_path(run_dir));
}

void MetricsFile::append(const nlohmann::ordered_json& line) { file_->append(line.dump() + "\n"); }

}  // namespace weft
