// Where the time goes: op_times.json as bars and tables.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "weft/report/report_sections.h"

namespace weft {
namespace {

constexpr size_t kMostOps = 20;  // rows of a table

/// In the order of a step, which is that of the bars and of the colours in page.css.
const std::vector<std::string> kKinds = {"embedding",  "attention",     "mlp",       "norm",
                                         "head",       "communication", "optimizer", "data",
                                         "evaluation", "checkpoint",    "sampling",  "other"};

size_t colour_of(const std::string& kind) {
  const auto found = std::find(kKinds.begin(), kKinds.end(), kind);
  return found == kKinds.end() ? kKinds.size() - 1 : size_t(found - kKinds.begin());
}

using SecondsByKind = std::map<std::string, double>;

/// What no op accounts for is "other".
SecondsByKind by_kind(const OpTimes& times) {
  SecondsByKind seconds;
  double sum = 0;
  for (const OpTime& op : times.ops) {
    seconds[kKinds[colour_of(op.kind)]] += op.seconds;
    sum += op.seconds;
  }
  if (times.seconds > sum) seconds["other"] += times.seconds - sum;
  return seconds;
}

double total(const SecondsByKind& seconds) {
  double sum = 0;
  for (const auto& [kind, value] : seconds) sum += value;
  return sum > 0 ? sum : 1;
}

std::string dot(size_t colour) {
  return fmt::format("<i class=\"dot\" style=\"background:var(--k{})\"></i>", colour);
}

/// Each kind's share of the time, as one stacked bar.
std::string bar(const SecondsByKind& seconds) {
  std::string html = "<div class=\"bar\">";
  for (size_t k = 0; k < kKinds.size(); ++k) {
    const auto found = seconds.find(kKinds[k]);
    if (found == seconds.end() || found->second <= 0) continue;
    const double share = 100 * found->second / total(seconds);
    html += fmt::format("<i style=\"width:{:.3f}%;background:var(--k{})\" title=\"{} {:.1f}%\">{}</i>", share,
                        k, kKinds[k], share, share > 7 ? kKinds[k] : "");
  }
  return html + "</div>";
}

std::string kind_table(const std::vector<RunRecord>& runs, const std::vector<SecondsByKind>& seconds) {
  std::string html = "<table class=\"parts\">\n<tr><th>Part of the work</th>";
  for (size_t i = 0; i < runs.size(); ++i)
    if (runs[i].op_times)
      html += fmt::format("<th class=\"n\">{}ms a step</th><th class=\"n\">share</th>",
                          runs.size() > 1 ? escaped(runs[i].name) + ", " : "");
  html += "</tr>\n";
  for (size_t k = 0; k < kKinds.size(); ++k) {
    std::string cells;
    bool any = false;
    for (size_t i = 0; i < runs.size(); ++i) {
      if (!runs[i].op_times) continue;
      const auto found = seconds[i].find(kKinds[k]);
      const double value = found == seconds[i].end() ? 0 : found->second;
      any = any || value > 0;
      cells +=
          fmt::format("<td class=\"n\">{:.2f}</td><td class=\"n\">{:.1f}%</td>",
                      1e3 * value / std::max(1.0, runs[i].op_times->steps), 100 * value / total(seconds[i]));
    }
    if (any) html += fmt::format("<tr><td>{}{}</td>{}</tr>\n", dot(k), kKinds[k], cells);
  }
  return html + "</table>\n";
}

std::string rate(double amount, double seconds) {
  return amount > 0 && seconds > 0 ? fmt::format("{:.1f}", amount / seconds / 1e9) : "";
}

std::string op_table(const OpTimes& times) {
  std::vector<OpTime> ops = times.ops;
  std::sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  const double steps = std::max(1.0, times.steps), all = total(by_kind(times));
  std::string html =
      "<table>\n<tr><th>Op</th><th>Part</th><th>Pass</th><th class=\"n\">Calls a step</th><th class=\"n\">ms "
      "a step</th>"
      "<th>Share</th><th class=\"n\">GFLOP/s</th><th class=\"n\">GB/s</th></tr>\n";
  for (size_t i = 0; i < std::min(kMostOps, ops.size()); ++i) {
    const OpTime& op = ops[i];
    const double share = 100 * op.seconds / all;
    html += fmt::format(
        "<tr><td>{}</td><td>{}{}</td><td>{}</td><td class=\"n\">{:.4g}</td><td class=\"n\">{:.2f}</td>"
        "<td class=\"sharecell\">{:.1f}%<i class=\"share\" "
        "style=\"width:{:.1f}px;background:var(--k{})\"></i></td>"
        "<td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
        escaped(op.op), dot(colour_of(op.kind)), escaped(op.kind), escaped(op.pass), op.calls / steps,
        1e3 * op.seconds / steps, share, 2 * share, colour_of(op.kind), rate(op.flops, op.seconds),
        rate(op.bytes, op.seconds));
  }
  html += "</table>\n";
  if (ops.size() > kMostOps)
    html += fmt::format("<p class=\"soft\">and {} quicker ones</p>\n", ops.size() - kMostOps);
  return html;
}

}  // namespace

std::string op_times_section(const std::vector<RunRecord>& runs) {
  std::vector<SecondsByKind> seconds(runs.size());
  std::string bars, tables;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].op_times) continue;
    seconds[i] = by_kind(*runs[i].op_times);
    if (runs.size() > 1) bars += fmt::format("<div>{}{}</div>", run_dot(i), escaped(runs[i].name));
    bars += bar(seconds[i]) + "\n";
    tables +=
        fmt::format("<details{}><summary>Ops{}, by time</summary>\n<div class=\"wide\">{}</div></details>\n",
                    runs.size() == 1 ? " open" : "", runs.size() > 1 ? " of " + escaped(runs[i].name) : "",
                    op_table(*runs[i].op_times));
  }
  if (bars.empty()) return "";
  return "<h2>Where the time goes</h2>\n<p class=\"about\">What the machine did in the measured steps. "
         "GFLOP/s and GB/s say "
         "how fast an op computed and how fast it moved data: a slow one with few of both is worth a "
         "look.</p>\n"
         "<section class=\"card work\">\n<div class=\"bars" +
         std::string(runs.size() > 1 ? " named" : "") + "\">" + bars + "</div>\n<div class=\"wide\">" +
         kind_table(runs, seconds) + "</div>\n" + tables + "</section>\n";
}

}  // namespace weft
