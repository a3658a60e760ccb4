// Steps of a run, "10-12", as log.profile names them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft {

struct StepRange {
  int64_t first, last;  // both included, counted from 1

  bool operator==(const StepRange&) const = default;
  std::string text() const;  // "steps 10-12", "step 10"
};

/// "10-12", or "10" for one step; nullopt if the text is neither. Not checked: 1 <= first <= last.
std::optional<StepRange> parse_step_range(const std::string& text);

/// What log.profile = "auto" asks for, in a run that goes on after `done` of `steps` steps: three steps from
/// the third on, when memory is warm, or the last ones of a short run.
StepRange automatic_profile(int64_t done, int64_t steps);

}  // namespace weft
