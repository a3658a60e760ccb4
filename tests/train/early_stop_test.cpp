#include "weft/train/early_stop.h"

#include <cmath>

#include <gtest/gtest.h>

namespace weft {
namespace {

EarlyStop early_stop(int64_t patience, double min_delta) {
  TrainConfig train;
  train.early_stop_patience = patience, train.early_stop_min_delta = min_delta;
  return EarlyStop(train);
}

TEST(EarlyStop, EndsWhenPatienceIsOver) {
  EarlyStop stop = early_stop(2, 0.125);
  for (const auto& [step, loss, due] : std::vector<std::tuple<int64_t, double, bool>>{
           {10, 3.0, false},
           {20, 2.875, false},  // lower by min_delta, not by more
           {30, 2.75, false},   // better than 3
           {40, std::nan(""), false},
           {50, 2.5, false},
           {60, 2.5, false},
           {70, 2.4, true},
       }) {
    stop.enter(step, loss);
    EXPECT_EQ(stop.due(), due) << step;
  }
  EXPECT_EQ(stop.reason(), "no better validation loss in 2 evaluations; the best was 2.5000 after step 50");
}

TEST(EarlyStop, CountsOnAfterARestart) {
  EarlyStop first = early_stop(3, 0);
  for (int64_t step = 1; step <= 3; ++step) first.enter(step, 2);
  EXPECT_FALSE(first.due());
  EarlyStop resumed = early_stop(3, 0);
  resumed.restore(nlohmann::json::parse(first.state().dump()));
  resumed.enter(4, 2);
  EXPECT_TRUE(resumed.due());
  EXPECT_EQ(resumed.reason(), "no better validation loss in 3 evaluations; the best was 2.0000 after step 1");
  EarlyStop patient = early_stop(4, 0);
  patient.restore(resumed.state());
  EXPECT_FALSE(patient.due()) << "more patience goes on";
}

TEST(EarlyStop, IsOffWithoutPatience) {
  EarlyStop off = early_stop(0, 0);
  for (int64_t step = 0; step < 100; ++step) off.enter(step, 1);
  EXPECT_FALSE(off.due());
}

TEST(EarlyStop, BearsLossesThatAreNeverFinite) {
  EarlyStop stop = early_stop(1, 0);
  stop.enter(5, INFINITY);
  EXPECT_TRUE(stop.due());
  EarlyStop resumed = early_stop(1, 0);
  resumed.restore(nlohmann::json::parse(stop.state().dump()));
  EXPECT_EQ(resumed.reason(), "no better validation loss in 1 evaluations; none was finite");
}

}  // namespace
}  // namespace weft
