// What a run shows when it ends: the loss curve on the terminal and as a page that opens offline.
#pragma once

#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "weft/base/config.h"
#include "weft/base/env.h"

namespace weft {

/// Prints the plot and writes RUN/loss.html. `lines` are those of metrics.jsonl; `baseline` is a bigram's
/// validation loss.
void write_summary(Env& env, const Config& config, const std::vector<nlohmann::ordered_json>& lines,
                   std::optional<double> baseline);

}  // namespace weft
