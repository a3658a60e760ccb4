// The parts of the report's page. Private to report.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/report/run_record.h"

namespace weft {

/// Text as HTML, fit for attributes too.
std::string escaped(std::string_view text);

/// "12,345"
std::string with_commas(int64_t count);

/// A spot in the colour of run `index`.
std::string run_dot(size_t index);

/// A card for each plot, for page.js to draw into, and the data that it draws, as JSON without "<".
struct ChartSection {
  std::string html, data;
};
ChartSection chart_section(const std::vector<RunRecord>& runs);

// Each is empty where there is nothing to show.
std::string headline_section(const std::vector<RunRecord>& runs);
std::string op_times_section(const std::vector<RunRecord>& runs);
std::string samples_section(const std::vector<RunRecord>& runs);
std::string config_section(const std::vector<RunRecord>& runs);

}  // namespace weft
