// The report's first lines: what each run came to.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "weft/base/progress.h"
#include "weft/report/report_sections.h"

namespace weft {
namespace {

struct Fact {
  std::string label, number, note;  // no number: not known of this run
  std::string meaning = "";         // what a tile says where there is no note
};

double median(const Points& points) {
  std::vector<double> values;
  for (const auto& point : points) values.push_back(point.second);
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double highest(const Points& points) {
  double top = points[0].second;
  for (const auto& point : points) top = std::max(top, point.second);
  return top;
}

/// One batch says little: the mean of the last fiftieth of the run.
Fact training_loss(const Metrics& metrics) {
  Fact fact{"Training loss", "", ""};
  const Points loss = metrics.points("loss");
  if (loss.empty()) return fact;
  const size_t count = std::max<size_t>(1, loss.size() / 50);
  double sum = 0;
  for (size_t i = loss.size() - count; i < loss.size(); ++i) sum += loss[i].second;
  fact.number = fmt::format("{:.4f}", sum / double(count));
  fact.note =
      count == 1 ? "of the last step" : fmt::format("mean of the last {} steps", with_commas(int64_t(count)));
  return fact;
}

Fact last_and_best(const Metrics& metrics, const std::string& key, const std::string& label) {
  Fact fact{label, "", ""};
  const auto best = metrics.lowest(key);
  if (!best) return fact;
  const double last = metrics.last(key);
  fact.number = fmt::format("{:.4f}", last);
  fact.note = best->second == last
                  ? "its best so far"
                  : fmt::format("best {:.4f}, step {}", best->second, with_commas(int64_t(best->first)));
  return fact;
}

Fact baseline(const Metrics& metrics) {
  const double value = metrics.last("baseline"), loss = metrics.last("valid_loss");
  if (!std::isfinite(value)) return {"Bigram baseline", "", ""};
  const std::string note = std::isfinite(loss) ? fmt::format("the model is {:.2f} {}", std::abs(value - loss),
                                                             loss < value ? "better" : "worse")
                                               : "";
  return {"Bigram baseline", fmt::format("{:.4f}", value), note};
}

/// None if the run's config does not tell, or is damaged.
std::optional<int64_t> planned_steps(const RunRecord& run) {
  const std::string text = run.value("train.steps");
  const char* const end = text.data() + text.size();
  int64_t steps = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, steps);
  return error == std::errc() && stop == end ? std::optional(steps) : std::nullopt;
}

Fact step_count(const RunRecord& run) {
  const auto planned = planned_steps(run);
  std::string note = planned ? "of " + with_commas(*planned) : "";
  if (!run.metrics.skipped.empty())
    note += fmt::format("{}{} skipped", note.empty() ? "" : ", ",
                        with_commas(int64_t(run.metrics.skipped.size())));
  return {"Steps", with_commas(run.last_step()), note};
}

/// The median of a column.
Fact typical(const Metrics& metrics, const std::string& key, const std::string& label,
             std::string (*text)(double), const std::string& meaning) {
  const Points points = metrics.points(key);
  return {label, points.empty() ? "" : text(median(points)), "", meaning};
}

std::vector<Fact> facts_of(const RunRecord& run) {
  const Metrics& metrics = run.metrics;
  const double tokens = metrics.last("tokens");
  const Points memory = metrics.points("rss_mb");
  const auto speed = [](double v) { return short_count(v) + " tok/s"; };
  const auto percent = [](double v) { return fmt::format("{:.0f}%", 100 * v); };
  return {
      training_loss(metrics),
      last_and_best(metrics, "valid_loss", "Validation loss"),
      last_and_best(metrics, "valid_loss_ema", "Averaged weights"),
      baseline(metrics),
      step_count(run),
      {"Tokens", std::isfinite(tokens) ? short_count(tokens) : "", "", "seen in training"},
      {"Time", short_duration(metrics.hours.back() * 3600), "", "spent in training steps"},
      typical(metrics, "tokens_per_s", "Speed", speed, "median of the steps"),
      typical(metrics, "mfu", "MFU", percent, "of the machine's peak"),
      {"Memory", memory.empty() ? "" : fmt::format("{:.0f} MB", highest(memory)), "", "at its highest"},
  };
}

std::string tiles(const std::vector<Fact>& facts) {
  std::string html = "<section class=\"tiles\">\n";
  for (const Fact& fact : facts)
    if (!fact.number.empty())
      html += fmt::format(
          "<div class=\"card tile\"><div class=\"label\">{}</div><div class=\"number\">{}</div>"
          "<div class=\"note\">{}</div></div>\n",
          fact.label, fact.number, fact.note + fact.meaning);
  return html + "</section>\n";
}

}  // namespace

std::string headline_section(const std::vector<RunRecord>& runs) {
  std::vector<std::vector<Fact>> facts;
  for (const auto& run : runs) facts.push_back(facts_of(run));
  if (runs.size() == 1) return tiles(facts[0]);
  std::string head = "<tr><th>Run</th>";
  std::vector<std::string> rows(runs.size());
  for (size_t i = 0; i < runs.size(); ++i)
    rows[i] = fmt::format("<tr><td>{}{}</td>", run_dot(i), escaped(runs[i].name));
  for (size_t column = 0; column < facts[0].size(); ++column) {
    const auto known = [&](const auto& row) { return !row[column].number.empty(); };
    if (std::none_of(facts.begin(), facts.end(), known)) continue;
    head += fmt::format("<th class=\"n\">{}</th>", facts[0][column].label);
    for (size_t i = 0; i < runs.size(); ++i) {
      const Fact& fact = facts[i][column];
      rows[i] += fact.number.empty() ? "<td class=\"n soft\">–</td>"
                                     : fmt::format("<td class=\"n\">{}<span class=\"note\">{}</span></td>",
                                                   fact.number, fact.note);
    }
  }
  std::string html = "<section class=\"card wide headline\">\n<table>\n" + head + "</tr>\n";
  for (const auto& row : rows) html += row + "</tr>\n";
  return html + "</table>\n</section>\n";
}

}  // namespace weft
