// Plots of curves as text for a terminal.
// Points that are not finite are left out; x is taken to grow along a curve.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace weft {

enum class Draw {
  kLine,      // the points, joined
  kSmoothed,  // a moving average
  kMarks,     // a mark for each point
};

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y
  Draw draw = Draw::kLine;
};

/// A horizontal line to compare with.
struct Baseline {
  std::string name;
  double value = 0;
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Curve> curves;
  std::vector<Baseline> baselines;
};

/// The plot in braille dots (UTF-8), `width` columns by `height` rows of plot, under its title and over its
/// legend; at least 20 by 4. With `colour` each curve has an ANSI colour.
std::string terminal_plot(const Plot& plot, int width, int height, bool colour);

}  // namespace weft
