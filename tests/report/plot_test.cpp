#include "weft/report/plot.h"

#include <cmath>
#include <limits>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/report/plot_scale.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Plot line_plot(Points points, Draw draw = Draw::kLine) {
  return {"Loss", "step", "loss", {{"training", std::move(points), draw}}, {}};
}

TEST(PlotScale, TicksAreRound) {
  const Scales scales = scales_of(line_plot({{0, 1}, {1200, 8.5}}), 6, 4);
  EXPECT_THAT(scales.x.ticks, ElementsAre(0, 200, 400, 600, 800, 1000, 1200));
  EXPECT_THAT(scales.y.ticks, ElementsAre(2, 4, 6, 8));
  EXPECT_EQ(scales.x.low, 0);
  EXPECT_EQ(scales.x.high, 1200);
  EXPECT_LT(scales.y.low, 1);
  EXPECT_GT(scales.y.high, 8.5);
  EXPECT_EQ(tick_text(0.25), "0.25");
  EXPECT_EQ(tick_text(9999), "9999");
  EXPECT_EQ(tick_text(20000), "20k");
  EXPECT_EQ(tick_text(1.5e6), "1.5M");
}

TEST(PlotScale, HoldsBaselinesAndLeavesOutWhatIsNotFinite) {
  Plot plot = line_plot({{1, kNan}, {2, 5}, {3, kInfinity}, {4, 6}, {kNan, 3}});
  EXPECT_EQ(line_of(plot.curves[0], 10), (Points{{2, 5}, {4, 6}}));
  plot.baselines = {{"bigram", 9}, {"none", kNan}};
  EXPECT_GT(scales_of(plot, 5, 5).y.high, 9);
}

TEST(PlotScale, ThinningKeepsSpikes) {
  Points points;
  for (int i = 0; i < 100000; ++i) points.emplace_back(i, i == 77777 ? 100 : std::sin(i));
  const Points thin = line_of({"c", points, Draw::kLine}, 300);
  EXPECT_LE(thin.size(), 600u);
  EXPECT_EQ(std::count(thin.begin(), thin.end(), std::pair(77777.0, 100.0)), 1);
  EXPECT_TRUE(std::is_sorted(thin.begin(), thin.end()));
}

TEST(PlotScale, SmoothingIsAMeanOfNeighbours) {
  Points points;
  for (int i = 0; i < 300; ++i) points.emplace_back(i, i % 2 == 0 ? 0 : 7);
  const Points smooth = line_of({"c", points, Draw::kSmoothed}, 1000);
  ASSERT_EQ(smooth.size(), 300u);
  EXPECT_EQ(smooth[0].second, 0);    // no neighbours on one side: itself
  EXPECT_EQ(smooth[100].second, 4);  // of 7 points around a 0 the 4 odd ones are 7
  EXPECT_EQ(smooth[101].second, 3);
  EXPECT_EQ(smooth[299].second, 3.5);  // no neighbours behind it: the last 4
  points.resize(19);                   // too few to smooth
  EXPECT_EQ(line_of({"c", points, Draw::kSmoothed}, 1000), points);
}

TEST(TerminalPlot, DrawsALine) {
  EXPECT_EQ(terminal_plot(line_plot({{0, 0}, {10, 10}}), 29, 5, false),
            "         Loss\n"
            "    loss\n"
            "     10 ┤                ⢀⡠⠤⠚\n"
            "        │            ⣀⡠⠔⠊⠁   \n"
            "      5 ┤        ⣀⠤⠒⠉        \n"
            "        │   ⢀⡠⠔⠊⠉            \n"
            "      0 ┤⡤⠒⠊⠁                \n"
            "        └┬─────────┬────────┬\n"
            "         0         5       10\n"
            "         ⠒⠒ training\n");
}

TEST(TerminalPlot, MarksAndBaselinesAndColours) {
  Plot plot = line_plot({{0, 1}, {10, 3}}, Draw::kMarks);
  plot.baselines = {{"bigram", 2}};
  const std::string plain = terminal_plot(plot, 40, 5, false);
  EXPECT_THAT(plain, HasSubstr("╌╌╌╌╌╌"));
  EXPECT_THAT(plain, HasSubstr("╌╌ bigram 2\n"));
  EXPECT_THAT(plain, Not(HasSubstr("\x1b")));
  EXPECT_EQ(std::regex_replace(terminal_plot(plot, 40, 5, true), std::regex("\x1b\\[[0-9]+m"), ""), plain);
  EXPECT_THAT(terminal_plot(plot, 40, 5, true), HasSubstr("\x1b[36m●\x1b[0m"));
}

/// Each number of points, and values that break careless arithmetic.
std::vector<Plot> hard_plots() {
  std::vector<Plot> plots = {{"", "", "", {}, {}},
                             line_plot({}),
                             line_plot({{1, 2}}),
                             line_plot({{1, 2}, {1, 2}}),
                             line_plot({{1, kNan}}),
                             line_plot({{1, 1e300}, {2, -1e300}}),
                             line_plot({{1, 1e99}, {2, -1e99}}),
                             line_plot({{0, 1}, {1, 1 + 1e-13}}),
                             line_plot({{0, 5e-324}, {1, 0}}),
                             line_plot({{1e15, 1}, {1e15 + 1, 2}})};
  Points many;
  for (int i = 0; i < 100000; ++i) many.emplace_back(i, i % 1000 == 0 ? kNan : 10.0 / (1 + i));
  plots.push_back(line_plot(many, Draw::kSmoothed));
  plots.push_back(line_plot(many, Draw::kMarks));
  return plots;
}

TEST(TerminalPlot, TakesAnyNumberOfPointsAndAnyValue) {
  for (const Plot& plot : hard_plots()) {
    for (const int width : {-5, 20, 100}) {
      const std::string text = terminal_plot(plot, width, 4, true);
      EXPECT_GE(std::count(text.begin(), text.end(), '\n'), 6);
      EXPECT_THAT(text, Not(HasSubstr("nan")));
    }
  }
}

}  // namespace
}  // namespace weft
