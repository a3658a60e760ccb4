#include "weft/report/plot_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace weft {
namespace {

constexpr size_t kFewPoints = 20;  // so few are not smoothed

Points finite_points(const Points& points) {
  Points kept;
  for (const auto& point : points) {
    // Beyond 1e100 the arithmetic of scales would overflow.
    if (std::abs(point.first) < 1e100 && std::abs(point.second) < 1e100) kept.push_back(point);
  }
  return kept;
}

/// The mean of each point's neighbours, a fiftieth of the curve wide. Towards the beginning it narrows
/// evenly, where a loss falls steeply; at the end, where curves are flat, it only lacks the neighbours that
/// are not.
Points smoothed(const Points& points) {
  const size_t n = points.size(), reach = n / 100;
  std::vector<double> sums(n + 1, 0);
  for (size_t i = 0; i < n; ++i) sums[i + 1] = sums[i] + points[i].second;
  Points result(n);
  for (size_t i = 0; i < n; ++i) {
    const size_t r = std::min(reach, i), begin = i - r, end = std::min(n, i + r + 1);
    result[i] = {points[i].first, (sums[end] - sums[begin]) / static_cast<double>(end - begin)};
  }
  return result;
}

/// Where buckets begin: three quarters of them evenly spaced, the others evenly in the logarithm.
std::vector<size_t> bucket_edges(size_t points, size_t buckets) {
  const size_t even = buckets - buckets / 4;
  std::vector<size_t> edges;
  for (size_t i = 0; i <= even; ++i) edges.push_back(i * points / even);
  for (size_t i = 1; i < buckets - even; ++i)
    edges.push_back(size_t(std::pow(double(points), double(i) / double(buckets - even))));
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

/// The lowest and the highest point of each bucket, in their order.
Points thinned(const Points& points, size_t buckets) {
  if (points.size() <= 2 * buckets) return points;
  const std::vector<size_t> edges = bucket_edges(points.size(), buckets);
  const auto at = [&](size_t index) { return points.begin() + static_cast<std::ptrdiff_t>(index); };
  Points kept;
  for (size_t i = 0; i + 1 < edges.size(); ++i) {
    auto [low, high] = std::minmax_element(at(edges[i]), at(edges[i + 1]),
                                           [](const auto& a, const auto& b) { return a.second < b.second; });
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (low != high) kept.push_back(*high);
  }
  return kept;
}

/// The round step, 1, 2 or 5 times a power of ten, that divides `span` into about `count` parts.
double round_step(double span, int count) {
  const double rough = 0.7 * span / count, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

Scale scale_over(double low, double high, int ticks) {
  if (!(low <= high)) return scale_over(0, 1, ticks);  // there were no points
  if (high - low <= 1e-9 * std::max(std::abs(low), std::abs(high)) || high == low) {
    const double room = std::max(std::abs(low) * 0.05, 0.5);
    return scale_over(low - room, high + room, ticks);
  }
  Scale scale{low, high, {}};
  const double step = round_step(high - low, ticks);
  for (double index = std::ceil(low / step - 1e-9); index * step <= high + 1e-9 * step; ++index) {
    scale.ticks.push_back(index * step + 0.0);  // + 0.0: no -0
  }
  return scale;
}

}  // namespace

Points line_of(const Curve& curve, size_t buckets) {
  Points points = finite_points(curve.points);
  if (curve.draw == Draw::kSmoothed && points.size() >= kFewPoints) points = smoothed(points);
  return thinned(points, buckets);
}

Points raw_points(const Curve& curve, size_t buckets) {
  return thinned(finite_points(curve.points), buckets);
}

Scales scales_of(const Plot& plot, int x_ticks, int y_ticks) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double left = kInfinity, right = -kInfinity, bottom = kInfinity, top = -kInfinity;
  const auto hold_y = [&](double y) {
    bottom = std::min(bottom, y);
    top = std::max(top, y);
  };
  for (const auto& curve : plot.curves) {
    for (const auto& [x, y] : line_of(curve, 1000)) {
      left = std::min(left, x);
      right = std::max(right, x);
      hold_y(y);
    }
  }
  for (const auto& baseline : plot.baselines) {
    if (std::abs(baseline.value) < 1e100) hold_y(baseline.value);
  }
  const double room = 0.04 * (top - bottom);
  return {scale_over(left, right, x_ticks), scale_over(bottom - room, top + room, y_ticks)};
}

std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size >= 1e9 || (size > 0 && size < 1e-4)) return fmt::format("{:.3g}", value);
  if (size >= 1e6) return fmt::format("{:.6g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.6g}k", value / 1e3);
  return fmt::format("{:.6g}", value);
}

}  // namespace weft
