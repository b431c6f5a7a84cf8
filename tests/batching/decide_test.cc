#include "gpulet/batching/decide.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace gpulet::batching {
namespace {

using std::chrono::milliseconds;

constexpr Time at(int ms) { return Time(milliseconds(ms)); }

// A lane whose batch of n takes 4 + 2 n ms, with turns every 20 ms.
class DecideTest : public ::testing::Test {
 protected:
  LaneView lane(std::size_t waiting, Time most_urgent, Time turn, Time now) const {
    return {waiting, most_urgent, execution_, turn, now, {}};
  }
  static std::uint32_t dispatched(const Decision& decision) {
    const auto* dispatch = std::get_if<Dispatch>(&decision);
    return dispatch == nullptr ? 0 : dispatch->count;
  }
  static Time asked_again(const Decision& decision) { return std::get<WaitUntil>(decision).time; }

  std::vector<Duration> execution_{milliseconds(6), milliseconds(8), milliseconds(10),
                                   milliseconds(12)};
};

TEST_F(DecideTest, NothingWaitingNeedsNoWakeUp) {
  EXPECT_EQ(asked_again(decide(lane(0, {}, at(0), at(0)), at(0))), kNever);
}

TEST_F(DecideTest, FullBatchLeavesBeforeItsTurn) {
  EXPECT_EQ(dispatched(decide(lane(4, at(100), at(20), at(5)), at(5))), 4U);
}

TEST_F(DecideTest, MoreThanABatchLeavesAsOneBatch) {
  EXPECT_EQ(dispatched(decide(lane(9, at(100), at(20), at(5)), at(5))), 4U);
}

TEST_F(DecideTest, PartialBatchWaitsForItsTurn) {
  EXPECT_EQ(asked_again(decide(lane(2, at(100), at(20), at(5)), at(5))), at(20));
}

TEST_F(DecideTest, PartialBatchLeavesOnItsTurn) {
  EXPECT_EQ(dispatched(decide(lane(2, at(100), at(20), at(20)), at(20))), 2U);
}

TEST_F(DecideTest, LaneIdleForACycleServesAtOnce) {
  EXPECT_EQ(dispatched(decide(lane(1, at(150), at(20), at(100)), at(100))), 1U);
}

TEST_F(DecideTest, DeadlineAtRiskEndsTheWait) {
  // Two requests take 8 ms and may take 2 ms more: with a deadline at 24 they must leave by 14,
  // before the turn at 20.
  LaneView view = lane(2, at(24), at(20), at(5));
  view.allowance = milliseconds(2);
  EXPECT_EQ(asked_again(decide(view, at(5))), at(14));
  view.start = at(14);
  EXPECT_EQ(dispatched(decide(view, at(14))), 2U);
}

TEST_F(DecideTest, BatchShrinksForTheMostUrgent) {
  // Only a batch of one (6 ms) ends by 27 when started at 20.
  EXPECT_EQ(dispatched(decide(lane(4, at(27), at(20), at(20)), at(20))), 1U);
}

TEST_F(DecideTest, BusyGpuletCountsAgainstTheDeadline) {
  LaneView view = lane(4, at(30), at(0), at(10));
  view.start = at(20);  // what it holds ends then: 10 ms are left, enough for three
  EXPECT_EQ(dispatched(decide(view, at(10))), 3U);
}

RC_GTEST_PROP(DecideProperty, NeverWaitsIntoThePastAndNeverExceedsTheBatch, ()) {
  const auto largest = *rc::gen::inRange<std::size_t>(1, 16);
  std::vector<Duration> execution;
  Duration total{};
  for (std::size_t i = 0; i < largest; ++i) {
    total += milliseconds(*rc::gen::inRange(1, 10));
    execution.push_back(total);
  }
  const Time now = at(*rc::gen::inRange(0, 1000));
  LaneView view;
  view.waiting = *rc::gen::inRange<std::size_t>(0, 40);
  view.execution = execution;
  view.turn = at(*rc::gen::inRange(0, 1200));
  view.start = now + milliseconds(*rc::gen::inRange(0, 50));
  view.allowance = milliseconds(*rc::gen::inRange(0, 5));
  view.most_urgent =
      view.start + view.allowance + execution.front() + milliseconds(*rc::gen::inRange(0, 300));
  const Decision decision = decide(view, now);
  if (const auto* dispatch = std::get_if<Dispatch>(&decision)) {
    RC_ASSERT(dispatch->count >= 1U);
    RC_ASSERT(dispatch->count <= std::min(view.waiting, largest));
    // By its own model the batch ends in time.
    RC_ASSERT(view.start + view.allowance + execution[dispatch->count - 1] <= view.most_urgent);
  } else {
    RC_ASSERT(std::get<WaitUntil>(decision).time > now);
  }
}

}  // namespace
}  // namespace gpulet::batching
