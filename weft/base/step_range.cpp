#include "weft/base/step_range.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace weft {
namespace {

std::optional<int64_t> parse_step(const std::string& text) {
  int64_t step = 0;
  if (text.starts_with('-')) return std::nullopt;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, step);
  if (error != std::errc() || stop != end) return std::nullopt;
  return step;
}

}  // namespace

std::string StepRange::text() const {
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {}-{}", first, last);
}

std::optional<StepRange> parse_step_range(const std::string& text) {
  const size_t dash = text.find('-');
  const auto first = parse_step(text.substr(0, dash));
  const auto last = dash == std::string::npos ? first : parse_step(text.substr(dash + 1));
  if (!first || !last) return std::nullopt;
  return StepRange{*first, *last};
}

StepRange automatic_profile(int64_t done, int64_t steps) {
  return {std::min(done + 3, steps), std::min(done + 5, steps)};
}

}  // namespace weft
