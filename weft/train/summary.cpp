#include "weft/train/summary.h"

#include <cstdio>

#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/plot.h"
#include "weft/base/progress.h"

namespace weft {
namespace {

Plot loss_plot(const Config& config, const std::vector<nlohmann::ordered_json>& lines,
               std::optional<double> baseline) {
  Plot plot{.title = "Loss of " + config.log.run_dir,
            .x_label = "step",
            .y_label = "nats per token",
            .curves = {},
            .baselines = {}};
  Curve train{"training", {}, Draw::kSmoothed}, valid{"validation", {}, Draw::kMarks};
  for (const auto& line : lines) {
    const double step = line.at("step").get<double>();
    if (line.at("loss").is_number() && !line.contains("skipped"))
      train.points.emplace_back(step, line["loss"].get<double>());
    if (line.contains("valid_loss") && line["valid_loss"].is_number())
      valid.points.emplace_back(step, line["valid_loss"].get<double>());
  }
  plot.curves = {train};
  if (!valid.points.empty()) plot.curves.push_back(valid);
  if (baseline) plot.baselines.push_back({"interpolated bigram (validation)", *baseline});
  return plot;
}

}  // namespace

void write_summary(Env& env, const Config& config, const std::vector<nlohmann::ordered_json>& lines,
                   std::optional<double> baseline) {
  if (lines.empty()) return;
  const Plot plot = loss_plot(config, lines, baseline);
  double seconds = 0;
  for (const auto& line : lines) seconds += line.value("step_s", 0.0);
  PlotFacts facts;
  facts.facts = {
      {"steps", fmt::format("{} of {}", lines.back().at("step").get<int64_t>(), config.train.steps)},
      {"tokens", short_count(lines.back().value("tokens", 0.0))},
      {"time in steps", short_duration(seconds)},
      {"model", fmt::format("{} layers, dim {}, {} heads, vocabulary {}", config.model.n_layers,
                            config.model.dim, config.model.n_heads, config.model.vocab_size)},
  };
  if (plot.curves.size() > 1)
    facts.facts.emplace_back("validation loss", fmt::format("{:.4f}", plot.curves[1].points.back().second));
  if (baseline) facts.facts.emplace_back("interpolated bigram", fmt::format("{:.4f}", *baseline));
  const std::string page = config.log.run_dir + "/loss.html";
  write_file_atomically(env, page, html_plot(plot, facts));
  const std::string plot_text = terminal_plot(plot, 76, 16, isatty(1) != 0);
  std::fputs(fmt::format("\n{}\nthe same as a page: {}\n", plot_text, page).c_str(), stdout);
}

}  // namespace weft
