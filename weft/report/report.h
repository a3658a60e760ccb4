// The report: what one run did, or several side by side, as one HTML page that opens offline.
#pragma once

#include <string>
#include <vector>

#include "weft/base/env.h"
#include "weft/report/run_record.h"

namespace weft {

/// The page. It needs no network; its size does not grow with the length of the runs.
std::string report_page(const std::vector<RunRecord>& runs);

/// Reads the runs and writes their page to `output`. Throws Error where a directory is no run.
void write_report(Env& env, const std::vector<std::string>& run_dirs, const std::string& output);

}  // namespace weft
