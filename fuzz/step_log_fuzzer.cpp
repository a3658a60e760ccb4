#include "weft/report/step_log.h"

#include "fuzz/targets.h"
#include "tests/base/memory_env.h"

namespace weft::fuzz {

void step_log(std::string_view input) {
  constexpr int64_t kLastStep = 100;
  MemoryEnv env({{"log", std::string(input)}});
  const auto lines = read_step_log(env, "log", kLastStep);
  StepLog(env, "log", kLastStep).append({{"step", kLastStep}});  // as a run that goes on does
  const auto kept = read_step_log(env, "log");
  WEFT_ASSERT(kept.size() == lines.size() + 1, "{} lines became {}", lines.size() + 1, kept.size());
  WEFT_ASSERT(std::equal(lines.begin(), lines.end(), kept.begin()), "a line changed");
}

}  // namespace weft::fuzz
