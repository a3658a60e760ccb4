// The report's texts: what the models wrote, and the configs.
#include <algorithm>

#include <fmt/format.h>

#include "weft/base/config.h"
#include "weft/base/error.h"
#include "weft/report/report_sections.h"

namespace weft {
namespace {

constexpr size_t kMostSamples = 60;  // of one prompt in one run

/// A run's samples of a prompt, the newest first; of many, some evenly spread.
std::vector<SampledText> samples_of(const RunRecord& run, const std::string& prompt) {
  std::vector<SampledText> all, kept;
  for (const auto& sample : run.samples)
    if (sample.prompt == prompt) all.push_back(sample);
  const size_t count = std::min(all.size(), kMostSamples);
  for (size_t i = 0; i < count; ++i) kept.push_back(all[all.size() - 1 - i * all.size() / count]);
  return kept;
}

std::string sample_column(const RunRecord& run, size_t run_index, bool named, const std::string& prompt) {
  std::string html = "<div class=\"scroll\">\n";
  for (const auto& sample : samples_of(run, prompt))
    html +=
        fmt::format("<div class=\"sample\"><div class=\"when\">{}step {}</div><pre><b>{}</b>{}</pre></div>\n",
                    named ? run_dot(run_index) + escaped(run.name) + ",&nbsp;" : "", with_commas(sample.step),
                    escaped(sample.prompt), escaped(sample.text));
  return html + "</div>\n";
}

struct ConfigRow {
  std::string key;
  std::vector<std::string> values;  // of each run; "": it has no such key
  bool differs = false, chosen = false;
};

std::vector<ConfigRow> config_rows(const std::vector<RunRecord>& runs) {
  std::vector<ConfigRow> rows;
  for (const auto& run : runs)
    for (const auto& [name, value] : run.config)
      if (std::none_of(rows.begin(), rows.end(), [&key = name](const auto& row) { return row.key == key; }))
        rows.push_back({name, {}});
  for (auto& row : rows)
    for (const auto& run : runs) {
      row.values.push_back(run.value(row.key));
      row.differs = row.differs || row.values.back() != row.values.front();
      row.chosen = row.chosen || run.chosen.contains(row.key);
    }
  return rows;
}

std::string help_of(const std::string& key) {
  try {
    return explain(key);
  } catch (const Error&) {
    return "";  // of another version of weft
  }
}

/// A table of the rows that `wanted` picks; values that are not the default are bold.
template <class Wanted>
std::string config_table(const std::vector<RunRecord>& runs, const std::vector<ConfigRow>& rows,
                         Wanted wanted) {
  std::string html;
  for (const auto& row : rows) {
    if (!wanted(row)) continue;
    html += fmt::format("<tr><td title=\"{}\">{}</td>", escaped(help_of(row.key)), escaped(row.key));
    const size_t columns = row.differs ? runs.size() : 1;
    for (size_t i = 0; i < columns; ++i) {
      const char* const tag = runs[i].chosen.contains(row.key) || (!row.differs && row.chosen) ? "b" : "span";
      html += fmt::format("<td{}><{}>{}</{}></td>",
                          columns < runs.size() ? fmt::format(" colspan=\"{}\"", runs.size()) : "", tag,
                          escaped(row.values[i].empty() ? "–" : row.values[i]), tag);
    }
    html += "</tr>\n";
  }
  return html.empty() ? "" : "<table>\n" + html + "</table>\n";
}

std::string run_names(const std::vector<RunRecord>& runs) {
  std::string html = "<tr><th>Key</th>";
  for (size_t i = 0; i < runs.size(); ++i)
    html += fmt::format("<th>{}{}</th>", run_dot(i), escaped(runs[i].name));
  return html + "</tr>\n";
}

}  // namespace

std::string samples_section(const std::vector<RunRecord>& runs) {
  std::vector<std::string> prompts;
  for (const auto& run : runs)
    for (const auto& sample : run.samples)
      if (std::find(prompts.begin(), prompts.end(), sample.prompt) == prompts.end())
        prompts.push_back(sample.prompt);
  if (prompts.empty()) return "";
  std::string html =
      "<h2>What the model writes</h2>\n<p class=\"about\">Texts drawn from the model as it learnt, the "
      "newest "
      "first: it continues the words in grey. Each uses the same random numbers, so that only what it has "
      "learnt makes the difference.</p>\n<section class=\"card samples\">\n";
  for (const auto& prompt : prompts) {
    html += fmt::format(
        "<h3>{}</h3>\n<div class=\"texts\" "
        "style=\"grid-template-columns:repeat(auto-fit,minmax(280px,1fr))\">\n",
        prompt.empty() ? "From nothing" : "After “" + escaped(prompt) + "”");
    for (size_t i = 0; i < runs.size(); ++i)
      if (std::any_of(runs[i].samples.begin(), runs[i].samples.end(),
                      [&](const auto& sample) { return sample.prompt == prompt; }))
        html += sample_column(runs[i], i, runs.size() > 1, prompt);
    html += "</div>\n";
  }
  return html + "</section>\n";
}

std::string config_section(const std::vector<RunRecord>& runs) {
  const std::vector<ConfigRow> rows = config_rows(runs);
  if (rows.empty()) return "";
  std::string html =
      "<h2>Config</h2>\n<p class=\"about\">Values in bold are not the default. Point at a key to see what it "
      "means.</p>\n<section class=\"card config wide\">\n";
  std::string different = config_table(runs, rows, [](const auto& row) { return row.differs; });
  if (!different.empty()) {
    different.insert(different.find('\n') + 1, run_names(runs));
    html += "<h3>Where the runs differ</h3>\n" + different;
  }
  const std::string chosen =
      config_table(runs, rows, [](const auto& row) { return !row.differs && row.chosen; });
  if (!chosen.empty())
    html += fmt::format("<h3>{}</h3>\n", runs.size() > 1 ? "Chosen, the same in all" : "Chosen") + chosen;
  const auto others = [](const auto& row) { return !row.differs && !row.chosen; };
  html += fmt::format("<details><summary>{} more keys, at their default</summary>\n{}</details>\n",
                      std::count_if(rows.begin(), rows.end(), others), config_table(runs, rows, others));
  return html + "</section>\n";
}

}  // namespace weft
