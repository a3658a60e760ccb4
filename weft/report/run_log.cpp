#include "weft/report/run_log.h"

#include <fmt/format.h>

#include "weft/base/error.h"

namespace weft {

RunLog::RunLog(Env& env, const Config& config, int64_t last_step,
               std::function<void(const std::string&)> warn)
    : warn_(std::move(warn)),
      metrics_(env, metrics_path(config.log.run_dir), last_step),
      samples_(env, samples_path(config.log.run_dir), last_step) {
  if (!config.log.tensorboard) return;
  events_.emplace(env, config.log.run_dir + "/tensorboard");
  attempt(&events_failed_, [&] { events_->text(last_step + 1, "config", to_toml(config)); });
}

void RunLog::attempt(bool* failed, const std::function<void()>& write) {
  try {
    write();
    *failed = false;
  } catch (const Error& error) {
    if (!*failed) warn_(error.what());
    *failed = true;
  }
}

void RunLog::metrics(const nlohmann::ordered_json& line) {
  attempt(&metrics_failed_, [&] { metrics_.append(line); });
  if (!events_) return;
  attempt(&events_failed_,
          [&] { events_->scalars(line.at("step").get<int64_t>(), tensorboard_scalars(line)); });
}

void RunLog::sample(int64_t step, size_t prompt_index, const std::string& prompt, const std::string& text) {
  attempt(&samples_failed_, [&] { samples_.append({{"step", step}, {"prompt", prompt}, {"text", text}}); });
  if (!events_) return;
  attempt(&events_failed_,
          [&] { events_->text(step, fmt::format("sampled text/{}", prompt_index + 1), prompt + text); });
}

}  // namespace weft
