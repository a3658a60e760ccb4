// Profiling chosen steps (log.profile): when the last of them ends, RUN/trace.json is written and the top ops
// are shown.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "weft/base/config.h"
#include "weft/base/env.h"
#include "weft/base/step_range.h"

namespace weft {

class Profile {
 public:
  /// Of a run that goes on after `done` steps. `say` shows the user a text. Without log.profile nothing ever
  /// happens.
  Profile(Env& env, const Config& config, int64_t done, double peak_flops,
          std::function<void(const std::string&)> say);

  // Each step is one outermost span between these two. Error if the trace cannot be written.
  void before_step(int64_t step);
  void after_step(int64_t step);

  /// The run ends after step `last`: writes what there is, and says so if chosen steps are missing.
  void finish(int64_t last);

 private:
  void write(StepRange traced);

  Env& env_;
  std::string run_dir_;
  double peak_flops_;
  std::function<void(const std::string&)> say_;
  std::optional<StepRange> steps_;  // none: nothing to do (any more)
};

}  // namespace weft
