// Plots of curves: as text for a terminal, and as one HTML page that needs nothing else.
// Points that are not finite are left out; x is taken to grow along a curve.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace weft {

enum class Draw {
  kLine,      // the points, joined
  kSmoothed,  // a moving average, on the page over the faint raw line
  kMarks,     // a mark for each point; on the page joined by a thin line
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

/// What stands on the page below the plot.
struct PlotFacts {
  std::vector<std::pair<std::string, std::string>> facts;  // name, value: a table
  std::string text_title;
  std::string text;  // a text block, such as a sample of the model's; empty: none
};

/// A page that opens offline: inline SVG, light or dark as the reader's system is, the values under the
/// mouse.
std::string html_plot(const Plot& plot, const PlotFacts& facts);

}  // namespace weft
