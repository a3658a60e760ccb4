#include "weft/report/loss_plot.h"

#include <cmath>

namespace weft {

Plot loss_plot(const std::string& title, const Metrics& metrics) {
  Plot plot{.title = title,
            .x_label = "step",
            .y_label = "nats per token",
            .curves = {{"training", metrics.points("loss"), Draw::kSmoothed}},
            .baselines = {}};
  const Points valid = metrics.points("valid_loss"), averaged = metrics.points("valid_loss_ema");
  if (!valid.empty()) plot.curves.push_back({"validation", valid, Draw::kMarks});
  if (!averaged.empty()) plot.curves.push_back({"with averaged weights", averaged, Draw::kMarks});
  if (const double value = metrics.last("baseline"); std::isfinite(value))
    plot.baselines.push_back({"interpolated bigram (validation)", value});
  return plot;
}

}  // namespace weft
