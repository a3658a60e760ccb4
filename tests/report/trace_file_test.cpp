#include "weft/report/trace_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace weft {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// A step of 10 ms: a layer of 8 ms, whose two ops take 5 and 2 ms.
std::vector<SpanEvent> a_step() {
  SpanEvent linear, norm, layer, step;
  linear.name = "linear", linear.level = SpanLevel::op, linear.kind = SpanKind::mlp;
  linear.pass = Pass::backward;
  linear.begin = 1'000'500, linear.end = 6'000'500, linear.own = 5'000'000;
  linear.work = {.flops = 50e6, .bytes = 20e6}, linear.shapes = "[512, 256]";
  norm.name = "rms_norm", norm.level = SpanLevel::op, norm.kind = SpanKind::norm, norm.pass = Pass::backward;
  norm.begin = 6'000'500, norm.end = 8'000'500, norm.own = 2'000'000;
  layer.name = "layer", layer.level = SpanLevel::block, layer.pass = Pass::backward, layer.index = 3;
  layer.begin = 1'000'000, layer.end = 9'000'000, layer.own = 1'000'000;
  step.name = "step", step.index = 12;
  step.begin = 500'000, step.end = 10'500'000, step.own = 2'000'000;
  return {linear, norm, layer, step};
}

TEST(OpTimes, AreTheTotals) {
  OpTotals totals;
  for (const SpanEvent& span : a_step()) add(&totals, span);
  const json file = json::parse(op_times_json(4, totals));
  EXPECT_EQ(file.at("steps"), 4);
  EXPECT_NEAR(file.at("seconds").get<double>(), 0.010, 1e-15);
  ASSERT_EQ(file.at("ops").size(), 4u);
  for (const json& op : file.at("ops")) {
    if (op.at("op") != "linear") continue;
    EXPECT_EQ(op, json::parse(R"({"op": "linear", "kind": "mlp", "pass": "backward", "calls": 1,
                                  "seconds": 0.005, "flops": 5e7, "bytes": 2e7})"));
  }
}

TEST(ChromeTrace, HasOneCompleteEventASpan) {
  const json trace = json::parse(chrome_trace(a_step(), "weft train runs/a \"b\""));
  const json& events = trace.at("traceEvents");
  ASSERT_EQ(events.size(), 3u + 4u);
  EXPECT_EQ(events[0], json::parse(R"({"name": "process_name", "ph": "M", "pid": 0, "tid": 0,
                                       "args": {"name": "weft train runs/a \"b\""}})"));
  EXPECT_EQ(events[2].at("name"), "thread_name");
  EXPECT_EQ(events[3], json::parse(R"({"name": "linear backward", "cat": "op", "ph": "X", "ts": 500.5,
                                       "dur": 5000.0, "pid": 0, "tid": 0,
                                       "args": {"kind": "mlp", "flops": 5e7, "bytes": 2e7,
                                                "shapes": "[512, 256]"}})"));
  EXPECT_EQ(events[5].at("name"), "layer 3 backward");
  EXPECT_EQ(events[6].at("name"), "step 12");
  EXPECT_EQ(events[6].at("ts"), 0);
}

// They may overlap: so they are no complete events of a thread.
TEST(ChromeTrace, HasAPairOfEventsForWhatGoesOnBeside) {
  std::vector<SpanEvent> spans = a_step();
  SpanEvent gather;
  gather.name = "all_gather", gather.level = SpanLevel::op, gather.kind = SpanKind::communication;
  gather.begin = 1'500'000, gather.end = 12'500'000;
  gather.work.bytes = 96, gather.what = "all_gather #17 over dp_shard";
  spans.push_back(gather);
  const json events = json::parse(chrome_trace(spans, "weft")).at("traceEvents");
  ASSERT_EQ(events.size(), 3u + 4u + 2u);
  EXPECT_EQ(events[7],
            json::parse(R"({"name": "all_gather", "cat": "communication", "ph": "b", "id": 1, "ts": 1000.0,
                                       "pid": 0, "tid": 0,
                                       "args": {"what": "all_gather #17 over dp_shard", "bytes": 96.0}})"));
  EXPECT_EQ(events[8], json::parse(R"({"name": "all_gather", "cat": "communication", "ph": "e", "id": 1,
                                       "ts": 12000.0, "pid": 0, "tid": 0})"));
  EXPECT_EQ(top_ops_table(spans, 40e9), top_ops_table(a_step(), 40e9)) << "they take no thread's time";
}

TEST(TopOps, AreSortedByTimeWithWhatTheyAchieved) {
  EXPECT_EQ(top_ops_table(a_step(), 40e9),
            "op               pass      part         calls       time  share   GFLOP/s of peak    GB/s\n"
            "linear           backward  mlp              1    5.00 ms  50.0%      10.0     25%     4.0\n"
            "rms_norm         backward  norm             1    2.00 ms  20.0%         -       -       -\n"
            "step                       other            1    2.00 ms  20.0%         -       -       -\n"
            "other            backward  other            1    1.00 ms  10.0%         -       -       -\n");
  EXPECT_THAT(top_ops_table(a_step(), 40e9, 1), HasSubstr("and 3 that took less\n"));
}

}  // namespace
}  // namespace weft
