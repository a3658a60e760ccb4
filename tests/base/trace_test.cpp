#include "weft/base/trace.h"

#include <stdexcept>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/fake_clock.h"

namespace weft {
namespace {

using testing::Pair;
using testing::UnorderedElementsAre;

// op, kind, pass -> own time.
std::map<std::string, int64_t> own_times() {
  std::map<std::string, int64_t> times;
  for (const auto& [key, total] : Trace::global().totals())
    times[fmt::format("{} {} {}", key.op, to_string(key.kind), to_string(key.pass))] = total.nanoseconds;
  return times;
}

class TraceTest : public testing::Test {
 protected:
  TraceTest() { FakeClock::install(); }
  ~TraceTest() override { Trace::global().restart(); }

  static void work(int64_t nanoseconds) { FakeClock::now += nanoseconds; }
  static void op(const char* name, SpanKind kind, int64_t nanoseconds) {
    const Span span(SpanLevel::op, name, kind, {.pass = Pass::forward});
    work(nanoseconds);
  }
};

TEST_F(TraceTest, OwnTimesSumToTheOutermostSpans) {
  {
    const Span step(SpanLevel::phase, "step");
    work(1);
    {
      const Span layer(SpanLevel::block, "layer", {.pass = Pass::forward, .index = 0});
      op("linear", SpanKind::attention, 10);
      work(100);
      op("linear", SpanKind::mlp, 1000);
      op("linear", SpanKind::attention, 20);
    }
    work(2);
  }
  EXPECT_THAT(own_times(),
              UnorderedElementsAre(Pair("step other ", 3), Pair("other other forward", 100),
                                   Pair("linear attention forward", 30), Pair("linear mlp forward", 1000)));
  EXPECT_EQ((Trace::global().totals().at({"linear", SpanKind::attention, Pass::forward}).calls), 2);
}

TEST_F(TraceTest, TotalsCountWork) {
  for (int i = 1; i <= 3; ++i) {
    Span span(SpanLevel::op, "linear");
    span.did({.flops = 10.0 * i, .bytes = 1.0 * i});
  }
  const OpTotal total = Trace::global().totals().at({"linear", SpanKind::other, Pass::none});
  EXPECT_EQ(total.work.flops, 60);
  EXPECT_EQ(total.work.bytes, 6);
}

TEST_F(TraceTest, KindsAreTheInnermostScopes) {
  EXPECT_EQ(current_kind(), SpanKind::other);
  {
    const KindScope attention(SpanKind::attention);
    {
      const KindScope norm(SpanKind::norm);
      EXPECT_EQ(current_kind(), SpanKind::norm);
    }
    EXPECT_EQ(current_kind(), SpanKind::attention);
    const Span span(SpanLevel::op, "linear", SpanKind::mlp);
    EXPECT_EQ(current_kind(), SpanKind::mlp);
  }
  EXPECT_EQ(current_kind(), SpanKind::other);
}

TEST_F(TraceTest, AllInsideAnEvaluationIsEvaluation) {
  for (const SpanKind whole : {SpanKind::evaluation, SpanKind::checkpoint, SpanKind::sampling}) {
    const Span span(SpanLevel::phase, "whole", whole);
    const KindScope scope(SpanKind::attention);
    EXPECT_EQ(current_kind(), whole);
    const Span inner(SpanLevel::op, "linear", SpanKind::mlp);
    EXPECT_EQ(current_kind(), whole);
  }
  const Span data(SpanLevel::phase, "read_batch", SpanKind::data);
  const KindScope scope(SpanKind::attention);
  EXPECT_EQ(current_kind(), SpanKind::attention);
}

TEST_F(TraceTest, EventsAreKeptOnlyWhileAskedFor) {
  op("before", SpanKind::mlp, 5);
  EXPECT_TRUE(Trace::global().take_events().empty());
  Trace::global().keep_events();
  {
    Span span(SpanLevel::op, "linear", SpanKind::mlp, {.pass = Pass::backward, .index = 3});
    work(7);
    span.did({.flops = 8, .bytes = 9});
    span.note_shapes("[2, 3]");
  }
  const auto events = Trace::global().take_events();
  op("after", SpanKind::mlp, 5);
  EXPECT_TRUE(Trace::global().take_events().empty());

  ASSERT_EQ(events.size(), 1u);
  const SpanEvent& event = events[0];
  EXPECT_EQ(event.title(), "linear 3 backward");
  EXPECT_EQ(event.kind, SpanKind::mlp);
  EXPECT_EQ(event.begin, 5);
  EXPECT_EQ(event.end, 12);
  EXPECT_EQ(event.own, 7);
  EXPECT_EQ(event.work.flops, 8);
  EXPECT_EQ(event.work.bytes, 9);
  EXPECT_EQ(event.shapes, "[2, 3]");
}

TEST_F(TraceTest, WhatGoesOnBesideIsInNoTotal) {
  Trace::global().ended_beside("all_gather", "all_gather #1 over dp", 0, {});
  Trace::global().keep_events();
  const int64_t begin = Trace::global().now();
  {
    const Span span(SpanLevel::op, "linear", SpanKind::mlp);
    work(7);
  }
  Trace::global().ended_beside("all_gather", "all_gather #2 over dp", begin, {.flops = 0, .bytes = 96});
  const auto events = Trace::global().take_events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_FALSE(events[0].is_beside());
  EXPECT_TRUE(events[1].is_beside());
  EXPECT_EQ(events[1].what, "all_gather #2 over dp");
  EXPECT_LE(events[1].begin, events[0].begin);
  EXPECT_GE(events[1].end, events[0].end);
  EXPECT_EQ(events[1].work.bytes, 96);
  EXPECT_EQ(Trace::global().totals().size(), 1u);
}

TEST_F(TraceTest, ThreadsHaveSpansOfTheirOwn) {
  Trace::global().keep_events();
  {
    const Span step(SpanLevel::phase, "step", SpanKind::optimizer);
    std::thread([] {
      EXPECT_EQ(current_kind(), SpanKind::other);
      const Span span(SpanLevel::phase, "writer");
      work(50);
    }).join();
  }
  const auto events = Trace::global().take_events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_NE(events[0].thread, events[1].thread);
  EXPECT_EQ(events[1].own, 50) << "another thread's span is not inside";
}

TEST_F(TraceTest, AnExceptionEndsItsSpans) {
  EXPECT_THROW(
      {
        const Span step(SpanLevel::phase, "step", SpanKind::evaluation);
        const Span layer(SpanLevel::block, "layer");
        throw std::runtime_error("broken");
      },
      std::runtime_error);
  EXPECT_EQ(current_kind(), SpanKind::other);
  op("linear", SpanKind::mlp, 5);
  EXPECT_EQ(own_times().at("linear mlp forward"), 5);
}

}  // namespace
}  // namespace weft
