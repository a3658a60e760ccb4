// What the terminal plot and the report's need: which points to draw, over which range, with which ticks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "weft/report/plot.h"

namespace weft {

using Points = std::vector<std::pair<double, double>>;

/// A range of values and its ticks at 1, 2 or 5 times a power of ten.
struct Scale {
  double low = 0;
  double high = 1;
  std::vector<double> ticks;

  double position(double value) const { return (value - low) / (high - low); }  // 0 at low, 1 at high
};

struct Scales {
  Scale x, y;
};

/// The curve's main line: its finite points, smoothed if it asks for that, thinned out to at most 2
/// `buckets`: the lowest and the highest of each bucket, so that spikes stay. A quarter of the buckets are
/// spent on the beginning, evenly on a logarithmic axis.
Points line_of(const Curve& curve, size_t buckets);

/// The points without smoothing, thinned out likewise.
Points raw_points(const Curve& curve, size_t buckets);

/// Ranges that hold the main lines and the baselines, with room around y, and about so many ticks.
Scales scales_of(const Plot& plot, int x_ticks, int y_ticks);

/// "0.5", "2000", "20k", "1.5M"
std::string tick_text(double value);

}  // namespace weft
