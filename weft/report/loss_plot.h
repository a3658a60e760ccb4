// The loss curves of a run, for the terminal.
#pragma once

#include <string>

#include "weft/report/metrics.h"
#include "weft/report/plot.h"

namespace weft {

/// Training and validation loss by step, with the bigram baseline where it was computed.
Plot loss_plot(const std::string& title, const Metrics& metrics);

}  // namespace weft
