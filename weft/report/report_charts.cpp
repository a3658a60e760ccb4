// The report's plots: a card each, and the series that page.js draws into it.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/report/report_sections.h"

namespace weft {
namespace {

using nlohmann::json;

constexpr size_t kBuckets = 400;    // of a curve: two points each at most
constexpr size_t kMostSkips = 300;  // marks of skipped steps

/// A line of a chart: a column of the metrics.
struct SeriesSpec {
  std::string key, name;
  const char* style;  // line, or smoothed (a line over the faint raw one), marks, rings
  double factor = 1;
};

struct ChartSpec {
  std::string id, title, about;
  std::vector<SeriesSpec> series;
  bool from_zero = false;  // the vertical axis begins at 0
};

/// Keys "valid_loss/NAME" of any of the runs.
std::vector<SeriesSpec> sources(const std::vector<RunRecord>& runs) {
  std::vector<SeriesSpec> series;
  std::set<std::string> keys;
  for (const auto& run : runs)
    for (const auto& [key, column] : run.metrics.columns)
      if (key.starts_with("valid_loss/") && keys.insert(key).second)
        series.push_back({key, key.substr(key.find('/') + 1), "marks"});
  return series;
}

std::vector<ChartSpec> chart_specs(const std::vector<RunRecord>& runs) {
  return {
      {"loss",
       "Loss",
       "How much the next token surprises the model, in nats: lower is better. The faint line is every step, "
       "the firm one a moving average; dots are the loss on text that is kept out of training. A bigram "
       "baseline guesses each token from the one before alone. A red triangle marks a skipped step.",
       {{"loss", "training", "smoothed"},
        {"valid_loss", "validation", "marks"},
        {"valid_loss_ema", "validation, averaged weights", "rings"}}},
      {"sources", "Validation loss by source",
       "The same loss on each set of texts that is kept out of training: which kind the model learns, and "
       "which it forgets.",
       sources(runs)},
      {"lr",
       "Learning rate",
       "How far an update moves the weights. It usually warms up, then falls.",
       {{"lr", "learning rate", "line"}},
       true},
      {"grad_norm",
       "Gradient norm",
       "How hard a batch pulls at the weights. Spikes come from odd batches or an unstable run; above the "
       "dashed line gradients are scaled down to it.",
       {{"grad_norm", "gradient norm", "smoothed"}},
       true},
      {"speed",
       "Tokens per second",
       "How fast the run reads its training text. Dips: something else used the machine.",
       {{"tokens_per_s", "tokens per second", "smoothed"}},
       true},
      {"mfu",
       "Model FLOP/s utilization (%)",
       "The share of the machine's measured peak that goes into the model's own arithmetic.",
       {{"mfu", "MFU", "smoothed", 100}},
       true},
      {"memory",
       "Memory (GB)",
       "What the process holds. A line that keeps rising would be a leak.",
       {{"rss_mb", "memory", "line", 1e-3}},
       true},
      {"weight_decay",
       "Weight decay",
       "How much each update shrinks the weights.",
       {{"weight_decay", "weight decay", "line"}},
       true},
      {"batch",
       "Batch size",
       "Sequences that make up one update.",
       {{"global_batch", "sequences", "line"}},
       true},
  };
}

/// Six digits are more than a plot shows.
double rounded(double value) { return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr); }

json series_json(const Metrics& metrics, const Points& points) {
  const auto found = metrics.columns.find("tokens");
  json series = {
      {"step", json::array()}, {"tokens", json::array()}, {"hours", json::array()}, {"y", json::array()}};
  for (const auto& [step, y] : points) {
    const size_t row = metrics.row_of(int64_t(step));
    const double tokens = found == metrics.columns.end() ? 0 : found->second[row];
    series["step"].push_back(int64_t(step));
    series["tokens"].push_back(std::isfinite(tokens) ? rounded(tokens) : 0);
    series["hours"].push_back(rounded(metrics.hours[row]));
    series["y"].push_back(rounded(y));
  }
  return series;
}

/// How a series looks, beside its style; page.js knows the colours and patterns.
struct Look {
  size_t colour, pattern;
};

void add_series(const RunRecord& run, size_t run_index, const Look& look, const SeriesSpec& spec, json* all) {
  const std::string style = spec.style;
  const bool smoothed = style == "smoothed";
  const Curve curve{spec.name, run.metrics.points(spec.key, spec.factor),
                    smoothed ? Draw::kSmoothed : Draw::kLine};
  if (curve.points.empty()) return;
  const auto add = [&](const Points& points, const std::string& as) {
    json series = series_json(run.metrics, points);
    series.update({{"run", run_index},
                   {"colour", look.colour},
                   {"pattern", look.pattern},
                   {"name", spec.name},
                   {"style", as}});
    all->push_back(std::move(series));
  };
  if (smoothed) add(raw_points(curve, kBuckets), "raw");
  add(line_of(curve, kBuckets), smoothed ? "line" : style);
}

/// What a chart's curves are compared with in a run; NaN: nothing.
double level_of(const RunRecord& run, const std::string& chart) {
  const double clip = std::atof(run.value("optim.clip_norm").c_str());
  if (chart == "loss") return run.metrics.last("baseline");
  return chart == "grad_norm" && clip > 0 ? clip : std::nan("");
}

/// Horizontal lines, one for each value; one of several runs belongs to none of them (-1).
json levels_json(const std::vector<RunRecord>& runs, const std::string& chart) {
  std::map<double, std::vector<size_t>> runs_by_value;
  for (size_t i = 0; i < runs.size(); ++i)
    if (const double value = level_of(runs[i], chart); std::isfinite(value))
      runs_by_value[rounded(value)].push_back(i);
  json levels = json::array();
  for (const auto& [value, which] : runs_by_value) {
    std::string name = chart == "loss" ? "bigram baseline" : "clipped above";
    const bool alone = which.size() == 1 && runs.size() > 1;
    if (alone) name += " of " + runs[which[0]].name;
    if (!alone && which.size() < runs.size()) name += fmt::format(" of {} runs", which.size());
    levels.push_back({{"name", name}, {"value", value}, {"run", alone ? int(which[0]) : -1}});
  }
  return levels;
}

json skips_json(const std::vector<RunRecord>& runs) {
  json skips = json::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    const Metrics& metrics = runs[i].metrics;
    const size_t stride = metrics.skipped.size() / kMostSkips + 1;
    for (size_t s = 0; s < metrics.skipped.size(); s += stride) {
      const auto& [step, reason] = metrics.skipped[s];
      const json at = series_json(metrics, {{double(step), 0}});
      skips.push_back({{"run", i},
                       {"step", step},
                       {"tokens", at["tokens"][0]},
                       {"hours", at["hours"][0]},
                       {"reason", reason}});
    }
  }
  return skips;
}

json chart_json(const std::vector<RunRecord>& runs, const ChartSpec& spec) {
  json chart = {{"id", spec.id}, {"title", spec.title}, {"zero", spec.from_zero}, {"series", json::array()}};
  const auto look_of = [&](size_t run, size_t s) {
    if (runs.size() == 1) return Look{s, 0};
    return Look{run, spec.id == "sources" ? s : run / 6};  // colour tells the runs apart
  };
  for (size_t i = 0; i < runs.size(); ++i)
    for (size_t s = 0; s < spec.series.size(); ++s)
      add_series(runs[i], i, look_of(i, s), spec.series[s], &chart["series"]);
  chart["levels"] = levels_json(runs, spec.id);
  chart["skips"] = spec.id == "loss" || spec.id == "grad_norm" ? skips_json(runs) : json::array();
  return chart;
}

/// Do all of the series have one and the same value?
bool is_constant(const json& series) {
  const json& first = series[0]["y"][0];
  for (const json& each : series)
    for (const json& y : each["y"])
      if (y != first) return false;
  return true;
}

std::string card(const ChartSpec& spec) {
  return fmt::format(
      "<div class=\"card chart{}\"><h3>{}</h3><p class=\"about\">{}</p>"
      "<div class=\"plot\" id=\"plot-{}\"></div><div class=\"legend\" id=\"legend-{}\"></div></div>\n",
      spec.id == "loss" ? " large" : "", spec.title, spec.about, spec.id, spec.id);
}

/// JSON that may stand inside a script element.
std::string script_safe(const json& value) {
  std::string text;
  for (const char c : value.dump(-1, ' ', false, json::error_handler_t::replace))
    text += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return text;
}

}  // namespace

ChartSection chart_section(const std::vector<RunRecord>& runs) {
  json data = {{"runs", json::array()}, {"charts", json::array()}};
  for (const auto& run : runs) data["runs"].push_back(run.name);
  std::string html = "<h2>How training went</h2>\n<div id=\"tools\"></div>\n<section class=\"charts\">\n";
  for (const auto& spec : chart_specs(runs)) {
    json chart = chart_json(runs, spec);
    if (chart["series"].empty() && spec.id != "loss") continue;
    if (spec.id == "batch" && is_constant(chart["series"]))
      continue;  // without a ramp the config says it all
    data["charts"].push_back(std::move(chart));
    html += card(spec);
  }
  html += "</section>\n<noscript>The plots need JavaScript; nothing is fetched from a network.</noscript>\n";
  return {html, script_safe(data)};
}

}  // namespace weft
