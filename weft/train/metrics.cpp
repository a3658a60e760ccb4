#include "weft/train/metrics.h"

#include <sstream>

namespace weft {

MetricsFile::MetricsFile(Env& env, const std::string& run_dir, int64_t last_step) {
  const std::string path = run_dir + "/metrics.jsonl";
  if (env.exists(path)) {
    std::istringstream old(env.read(path));
    std::string kept;
    for (std::string text; std::getline(old, text);) {
      auto line = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (!line.is_object() || !line.contains("step") || line["step"] > last_step) break;
      kept += text + "\n";
      lines_.push_back(std::move(line));
    }
    write_file_atomically(env, path, kept);
  }
  file_ = env.open_append(path);
}

void MetricsFile::append(const nlohmann::ordered_json& line) {
  file_->append(line.dump() + "\n");
  lines_.push_back(line);
}

}  // namespace weft
