#include "weft/report/run_record.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/config.h"
#include "weft/base/distinct_names.h"
#include "weft/base/error.h"
#include "weft/report/step_log.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

/// The directory's path, the same for every way to write it.
fs::path plain_path(const std::string& dir) {
  const fs::path path = fs::absolute(dir).lexically_normal();
  return path.has_filename() ? path : path.parent_path();  // without the last slash
}

std::string problem_of(Env& env, const std::string& dir) {
  if (!env.exists(dir)) return fmt::format("{} does not exist", dir);
  if (!env.exists(metrics_path(dir)))
    return fmt::format("{} is no run directory: it has no metrics.jsonl", dir);
  return "";
}

/// The keys that were chosen: unknown, so none, without a config.
std::set<std::string> chosen_in(Env& env, const std::string& dir) {
  std::optional<Config> config = saved_config(env, dir);
  if (!config) return {};
  resolve(&*config);
  const auto keys = chosen_keys(*config);
  return {keys.begin(), keys.end()};
}

OpTimes read_op_times(Env& env, const std::string& path) {
  OpTimes times;
  try {
    const auto json = nlohmann::json::parse(env.read(path));
    times.steps = json.at("steps").get<double>();
    times.seconds = json.at("seconds").get<double>();
    for (const auto& op : json.at("ops"))
      times.ops.push_back({op.at("op").get<std::string>(), op.at("kind").get<std::string>(),
                           op.at("pass").get<std::string>(), op.at("calls").get<double>(),
                           op.at("seconds").get<double>(), op.at("flops").get<double>(),
                           op.at("bytes").get<double>()});
  } catch (const nlohmann::json::exception& error) {
    fail("{} is damaged ({}): remove it to do without it", path, error.what());
  }
  return times;
}

RunRecord read_run(Env& env, const std::string& dir) {
  RunRecord run;
  run.dir = dir;
  MetricsReader reader(env, dir);
  reader.poll();
  run.metrics = reader.metrics();
  run.samples = read_samples(env, dir);
  if (const std::string path = dir + "/config.toml"; env.exists(path)) {
    run.config = toml_values(env.read(path));
    run.chosen = chosen_in(env, dir);
  }
  if (const std::string path = dir + "/op_times.json"; env.exists(path))
    run.op_times = read_op_times(env, path);
  return run;
}

}  // namespace

std::string RunRecord::value(const std::string& key) const {
  for (const auto& [each, text] : config)
    if (each == key) return text;
  return "";
}

std::optional<Config> saved_config(Env& env, const std::string& run_dir) {
  const std::string path = run_dir + "/config.toml";
  if (!env.exists(path)) return {};
  try {
    std::vector<std::string> warnings;
    return load_config(path, {}, &warnings, env);
  } catch (const Error&) {
    return {};
  }
}

std::vector<SampledText> read_samples(Env& env, const std::string& run_dir) {
  std::vector<SampledText> samples;
  for (const auto& line : read_step_log(env, samples_path(run_dir))) {
    const auto prompt = line.find("prompt"), text = line.find("text");
    if (prompt != line.end() && prompt->is_string() && text != line.end() && text->is_string())
      samples.push_back({line["step"].get<int64_t>(), prompt->get<std::string>(), text->get<std::string>()});
  }
  return samples;
}

std::vector<RunRecord> read_runs(Env& env, const std::vector<std::string>& dirs) {
  std::vector<std::string> problems;
  std::set<fs::path> seen;
  for (const auto& dir : dirs) {
    if (!seen.insert(plain_path(dir)).second) problems.push_back(dir + " is named twice");
    if (const std::string problem = problem_of(env, dir); !problem.empty()) problems.push_back(problem);
  }
  std::vector<RunRecord> runs;
  for (const auto& dir : problems.empty() ? dirs : std::vector<std::string>()) {
    runs.push_back(read_run(env, dir));
    if (runs.back().metrics.step.empty())
      problems.push_back(fmt::format(
          "{} has no metrics yet: its first step is not done; `weft watch {}` waits for it", dir, dir));
  }
  if (!problems.empty()) fail("{}", fmt::join(problems, "\n"));
  std::vector<std::string> paths;
  for (const auto& dir : dirs) paths.push_back(plain_path(dir).string());
  const auto names = distinct_names(paths);
  for (size_t i = 0; i < runs.size(); ++i) runs[i].name = names[i];
  return runs;
}

}  // namespace weft
