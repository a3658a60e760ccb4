#include "weft/report/report.h"

#include <fmt/format.h>

#include "weft/report/page/assets.h"
#include "weft/report/report_sections.h"

namespace weft {
namespace {

std::string without_quotes(const std::string& toml) {
  return toml.size() >= 2 && toml.front() == '"' ? toml.substr(1, toml.size() - 2) : toml;
}

/// "6 layers, dim 192, 3 heads, vocabulary 1024, fp32"
std::string shape_of(const RunRecord& run) {
  if (run.config.empty()) return "";
  return fmt::format("{} layers, dim {}, {} heads, vocabulary {}, {}", run.value("model.n_layers"),
                     run.value("model.dim"), run.value("model.n_heads"), run.value("model.vocab_size"),
                     without_quotes(run.value("precision.compute")));
}

std::string title_of(const std::vector<RunRecord>& runs) {
  return runs.size() == 1 ? runs[0].name : fmt::format("{} runs compared", runs.size());
}

std::string header(const std::vector<RunRecord>& runs) {
  std::string html = fmt::format("<header>\n<h1>{}</h1>\n", escaped(title_of(runs)));
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string shape = escaped(shape_of(runs[i]));
    html += runs.size() == 1 ? fmt::format("<p class=\"soft\">{}</p>\n", shape)
                             : fmt::format("<p>{}<b>{}</b> <span class=\"soft\">{}</span></p>\n", run_dot(i),
                                           escaped(runs[i].name), shape);
  }
  return html + "</header>\n";
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else if (static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\t')
      result += c;
  }
  return result;
}

std::string with_commas(int64_t count) {
  std::string digits = std::to_string(count);
  for (int64_t at = int64_t(digits.size()) - 3; at > (count < 0 ? 1 : 0); at -= 3)
    digits.insert(size_t(at), ",");
  return digits;
}

std::string run_dot(size_t index) {
  return fmt::format("<i class=\"dot\" style=\"background:var(--c{})\"></i>", index % 6);
}

std::string report_page(const std::vector<RunRecord>& runs) {
  const ChartSection charts = chart_section(runs);
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{} - weft</title>\n<style>\n{}</style>\n</head>\n<body>\n",
      escaped(title_of(runs)), kPageStyle);
  html += header(runs) + headline_section(runs) + charts.html;
  html += op_times_section(runs) + samples_section(runs) + config_section(runs);
  html += "<footer>Made by weft " WEFT_VERSION "</footer>\n";
  html += fmt::format("<script type=\"application/json\" id=\"data\">{}</script>\n", charts.data);
  return html + fmt::format("<script>\n{}</script>\n</body>\n</html>\n", kPageScript);
}

void write_report(Env& env, const std::vector<std::string>& run_dirs, const std::string& output) {
  write_file_atomically(env, output, report_page(read_runs(env, run_dirs)));
}

}  // namespace weft
