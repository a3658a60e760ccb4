// The plot for a terminal.
#include "weft/report/plot.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/progress.h"
#include "weft/report/plot_scale.h"

namespace weft {
namespace {

constexpr int kMargin = 9;  // columns left of the plot: tick labels and the axis

const char* const kColours[] = {"\x1b[36m", "\x1b[33m", "\x1b[35m", "\x1b[32m", "\x1b[34m", "\x1b[31m"};
const char* const kGrey = "\x1b[90m";
const char* const kNoColour = "\x1b[0m";

const char* colour_of(size_t curve) { return kColours[curve % std::size(kColours)]; }

/// Width on the screen, where each character takes a column.
int columns(const std::string& text) { return static_cast<int>(characters(text)); }

std::string spaces(int count) { return std::string(static_cast<size_t>(std::max(0, count)), ' '); }

/// A braille character holds 2 by 4 dots; U+2800 plus a bit for each dot.
std::string braille(unsigned dots) {
  const unsigned code = 0x2800 + dots;
  return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

class Canvas {
 public:
  Canvas(int width, int height)
      : width_(width), height_(height), cells_(static_cast<size_t>(width * height)) {}

  /// (x, y) in 0..1 from the lower left corner; what lies outside is left out.
  void line(double x0, double y0, double x1, double y1, const char* colour) {
    const double length = std::max(std::abs(x1 - x0) * 2 * width_, std::abs(y1 - y0) * 4 * height_);
    const int steps = static_cast<int>(std::min(length, 4.0 * (width_ + height_))) + 1;
    for (int i = 0; i <= steps; ++i) {
      const double t = static_cast<double>(i) / steps;
      dot(x0 + t * (x1 - x0), y0 + t * (y1 - y0), colour);
    }
  }

  void mark(double x, double y, const std::string& character, const char* colour) {
    if (Cell* cell = at(column(x), row(y))) *cell = {0, character, colour};
  }

  /// A dashed line through the cells that are still empty.
  void level(double y, const char* colour) {
    for (int c = 0; c < width_; ++c) {
      Cell* cell = at(c, row(y));
      if (cell != nullptr && cell->dots == 0 && cell->character.empty()) *cell = {0, "╌", colour};
    }
  }

  std::string text(int row, bool colour) const {
    std::string line;
    const char* current = nullptr;
    for (int c = 0; c < width_; ++c) {
      const Cell& cell = cells_[static_cast<size_t>(row * width_ + c)];
      if (colour && cell.colour != current) {
        if (current != nullptr) line += kNoColour;
        if (cell.colour != nullptr) line += cell.colour;
        current = cell.colour;
      }
      line += !cell.character.empty() ? cell.character : cell.dots == 0 ? " " : braille(cell.dots);
    }
    return current != nullptr ? line + kNoColour : line;
  }

  int row(double y) const {
    return height_ - 1 - std::min(height_ - 1, static_cast<int>(std::floor(y * height_)));
  }
  int column(double x) const { return std::min(width_ - 1, static_cast<int>(std::floor(x * width_))); }

 private:
  struct Cell {
    unsigned dots = 0;
    std::string character;  // instead of dots
    const char* colour = nullptr;
  };

  Cell* at(int column, int row) {
    if (column < 0 || row < 0 || column >= width_ || row >= height_) return nullptr;
    return &cells_[static_cast<size_t>(row * width_ + column)];
  }

  void dot(double x, double y, const char* colour) {
    static constexpr unsigned kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (!(x >= 0 && x <= 1 && y >= 0 && y <= 1)) return;
    const int dot_x = std::min(2 * width_ - 1, static_cast<int>(x * 2 * width_));
    const int dot_y = std::min(4 * height_ - 1, static_cast<int>((1 - y) * 4 * height_));
    Cell& cell = *at(dot_x / 2, dot_y / 4);
    cell.dots |= kBits[dot_y % 4][dot_x % 2];
    cell.colour = colour;
  }

  int width_, height_;
  std::vector<Cell> cells_;
};

void draw_curve(const Curve& curve, const Scales& scales, const char* colour, Canvas* canvas) {
  const auto place = [&](const auto& point) {
    return std::pair(scales.x.position(point.first), scales.y.position(point.second));
  };
  const Points points = line_of(curve, 1000);
  for (size_t i = 0; i < points.size(); ++i) {
    const auto [x, y] = place(points[i]);
    if (curve.draw == Draw::kMarks) {
      canvas->mark(x, y, "●", colour);
    } else {
      const auto [x0, y0] = place(points[i == 0 ? 0 : i - 1]);
      canvas->line(x0, y0, x, y, colour);
    }
  }
}

std::string x_axis(const Plot& plot, const Scale& scale, const Canvas& canvas, int width) {
  std::string axis = spaces(kMargin - 1) + "└", labels = spaces(kMargin);
  std::vector<bool> ticks(static_cast<size_t>(width), false);
  for (const double tick : scale.ticks) {
    const int column = canvas.column(scale.position(tick));
    const std::string text = tick_text(tick);
    const int start = std::clamp(kMargin + column - columns(text) / 2, 0, kMargin + width - columns(text));
    if (start <= columns(labels) && columns(labels) > kMargin) continue;  // it would touch its neighbour
    ticks[static_cast<size_t>(column)] = true;
    labels += spaces(start - columns(labels)) + text;
  }
  for (const bool tick : ticks) axis += tick ? "┬" : "─";
  if (!plot.x_label.empty() && columns(labels) + columns(plot.x_label) + 2 <= kMargin + width) {
    labels += spaces(kMargin + width - columns(labels) - columns(plot.x_label)) + plot.x_label;
  }
  return axis + "\n" + labels + "\n";
}

std::string legend(const Plot& plot, bool colour) {
  std::string text;
  const auto entry = [&](const std::string& sign, const std::string& name, const char* code) {
    text += text.empty() ? spaces(kMargin) : "   ";
    text += colour ? code + sign + kNoColour : sign;
    text += " " + name;
  };
  for (size_t i = 0; i < plot.curves.size(); ++i) {
    entry(plot.curves[i].draw == Draw::kMarks ? "●" : "⠒⠒", plot.curves[i].name, colour_of(i));
  }
  for (const auto& baseline : plot.baselines) {
    entry("╌╌", fmt::format("{} {:.4g}", baseline.name, baseline.value), kGrey);
  }
  return text.empty() ? "" : text + "\n";
}

}  // namespace

std::string terminal_plot(const Plot& plot, int width, int height, bool colour) {
  width = std::max(20, width) - kMargin;
  height = std::max(4, height);
  const Scales scales = scales_of(plot, width / 12 + 1, height / 3 + 1);
  Canvas canvas(width, height);
  for (size_t i = 0; i < plot.curves.size(); ++i) draw_curve(plot.curves[i], scales, colour_of(i), &canvas);
  for (const auto& baseline : plot.baselines) {
    if (std::isfinite(baseline.value)) canvas.level(scales.y.position(baseline.value), kGrey);
  }

  std::vector<std::string> labels(static_cast<size_t>(height));
  for (const double tick : scales.y.ticks) {
    labels[static_cast<size_t>(canvas.row(scales.y.position(tick)))] = tick_text(tick);
  }
  std::string text;
  if (!plot.title.empty()) text += spaces(kMargin) + plot.title + "\n";
  if (!plot.y_label.empty()) text += spaces(kMargin - 1 - columns(plot.y_label)) + plot.y_label + "\n";
  for (int row = 0; row < height; ++row) {
    const std::string& label = labels[static_cast<size_t>(row)];
    text += spaces(kMargin - 2 - columns(label)) + label + (label.empty() ? " │" : " ┤") +
            canvas.text(row, colour) + "\n";
  }
  return text + x_axis(plot, scales.x, canvas, width) + legend(plot, colour);
}

}  // namespace weft
