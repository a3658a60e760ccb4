// The nearest known name to a mistyped one, for "did you mean" hints.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (each swap once).
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last = std::exchange(last, row);
  }
  return last.back();
}

/// The candidate nearest to `word` (the first of equals); empty when none is close: more than a third of
/// the longer name would have to change.
inline std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 256) return {};
  std::string best;
  size_t best_distance = SIZE_MAX;
  for (const auto& candidate : candidates) {
    const auto [shorter, longer] = std::minmax({word.size(), candidate.size()});
    const size_t allowed = std::max<size_t>(1, longer / 3);
    if (longer - shorter > allowed) continue;  // the distance is at least this
    const size_t distance = edit_distance(word, candidate);
    if (distance <= allowed && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace weft
