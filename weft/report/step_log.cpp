#include "weft/report/step_log.h"

#include <sstream>

#include "weft/base/json.h"

namespace weft {
namespace {

std::string line_text(const nlohmann::ordered_json& line) {
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::vector<nlohmann::ordered_json> read_step_log(Env& env, const std::string& path, int64_t last_step) {
  std::vector<nlohmann::ordered_json> lines;
  if (!env.exists(path)) return lines;
  std::istringstream file(env.read(path));
  for (std::string text; std::getline(file, text);) {
    nlohmann::ordered_json line;
    try {
      line = parse_json<nlohmann::ordered_json>(text, path);
    } catch (const Error&) {
      continue;
    }
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) continue;
    if (line["step"].get<int64_t>() <= last_step) lines.push_back(std::move(line));
  }
  return lines;
}

StepLog::StepLog(Env& env, const std::string& path, int64_t last_step) {
  std::string kept;
  for (const auto& line : read_step_log(env, path, last_step)) kept += line_text(line);
  write_file_atomically(env, path, kept);
  file_ = env.open_append(path);
}

void StepLog::append(const nlohmann::ordered_json& line) {
  const std::string text = torn_ ? "\n" + line_text(line) : line_text(line);
  torn_ = true;
  file_->append(text);
  torn_ = false;
}

}  // namespace weft
