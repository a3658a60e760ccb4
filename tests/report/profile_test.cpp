#include "weft/report/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "weft/base/trace.h"

#include "tests/base/fake_clock.h"
#include "tests/base/temporary_dir.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ProfileTest : public testing::Test {
 protected:
  ProfileTest() {
    FakeClock::install_ticking();
    config.log.run_dir = dir.path();
    config.train.steps = 20;
  }
  ~ProfileTest() override { Trace::global().restart(); }

  // A run from the step after `done` to `last`; the steps in the trace it leaves.
  std::vector<std::string> traced(const std::string& steps, int64_t done, int64_t last) {
    const std::string path = dir / "trace.json";
    env.remove_all(path);
    said.clear();
    config.log.profile = steps;
    Profile profile(env, config, done, 1e9, [&](const std::string& text) { said += text + "\n"; });
    for (int64_t step = done + 1; step <= last; ++step) {
      profile.before_step(step);
      { const Span span(SpanLevel::phase, "step", {.index = step}); }
      profile.after_step(step);
    }
    profile.finish(last);
    EXPECT_FALSE(Trace::global().keeps_events());
    std::vector<std::string> names;
    if (!env.exists(path)) return names;
    const auto trace = nlohmann::json::parse(env.read(path));
    for (const auto& event : trace.at("traceEvents"))
      if (event.at("ph") == "X") names.push_back(event.at("name"));
    return names;
  }

  TemporaryDir dir;
  Env& env = Env::system();
  Config config;
  std::string said;
};

TEST_F(ProfileTest, TracesTheChosenSteps) {
  EXPECT_THAT(traced("5-6", 0, 20), ElementsAre("step 5", "step 6"));
  EXPECT_THAT(said, HasSubstr("where the time of steps 5-6 went:"));
  EXPECT_THAT(said, HasSubstr(dir / "trace.json"));
  EXPECT_THAT(traced("20", 0, 20), ElementsAre("step 20"));
  EXPECT_THAT(traced("", 0, 20), IsEmpty());
  EXPECT_EQ(said, "");
}

TEST_F(ProfileTest, AutoIsThreeStepsSoonAfterTheStart) {
  EXPECT_THAT(traced("auto", 0, 20), ElementsAre("step 3", "step 4", "step 5"));
  EXPECT_THAT(traced("auto", 10, 20), ElementsAre("step 13", "step 14", "step 15"));
  EXPECT_THAT(traced("auto", 19, 20), ElementsAre("step 20"));
}

TEST_F(ProfileTest, SaysWhichStepsAreMissing) {
  EXPECT_THAT(traced("5-6", 6, 20), IsEmpty());
  EXPECT_THAT(said, HasSubstr("this start goes on after step 6, past steps 5-6: nothing is traced"));
  EXPECT_THAT(traced("5-7", 5, 20), ElementsAre("step 6", "step 7"));
  EXPECT_THAT(said, HasSubstr("of \"5-7\" only steps 6-7 are left to trace"));
  EXPECT_THAT(traced("5-7", 0, 6), ElementsAre("step 5", "step 6"));
  EXPECT_THAT(said, HasSubstr("the run ended after step 6, within steps 5-7"));
  EXPECT_THAT(traced("5-7", 0, 4), IsEmpty());
  EXPECT_THAT(said, HasSubstr("the run ended after step 4, before steps 5-7: nothing is traced"));
}

}  // namespace
}  // namespace weft
