#include "gpulet/batching/dispatch_policy.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace gpulet::batching {
namespace {

using std::chrono::milliseconds;

constexpr Time at(int ms) { return Time(milliseconds(ms)); }

// A model slot whose batch of n takes 4 + 2 n ms, with a duty cycle of 20 ms.
class DecideTest : public ::testing::Test {
 protected:
  SlotView slot(std::size_t waiting, Time most_urgent, Time turn, Time now) const {
    return {waiting, most_urgent, execution_, turn, now, {}};
  }
  static std::uint32_t dispatched(const Decision& decision) {
    const auto* dispatch = std::get_if<Dispatch>(&decision);
    return dispatch == nullptr ? 0 : dispatch->count;
  }
  static Time waits_until(const Decision& decision) { return std::get<WaitUntil>(decision).time; }

  std::vector<Duration> execution_{milliseconds(6), milliseconds(8), milliseconds(10),
                                   milliseconds(12)};
};

TEST_F(DecideTest, NeedsNoWakeupWithoutRequests) {
  EXPECT_EQ(waits_until(decide(slot(0, {}, at(0), at(0)), at(0))), kNever);
}

TEST_F(DecideTest, DispatchesAFullBatchBeforeItsTurn) {
  EXPECT_EQ(dispatched(decide(slot(4, at(100), at(20), at(5)), at(5))), 4U);
}

TEST_F(DecideTest, DispatchesAtMostTheLargestBatch) {
  EXPECT_EQ(dispatched(decide(slot(9, at(100), at(20), at(5)), at(5))), 4U);
}

TEST_F(DecideTest, HoldsAPartialBatchUntilItsTurn) {
  EXPECT_EQ(waits_until(decide(slot(2, at(100), at(20), at(5)), at(5))), at(20));
}

TEST_F(DecideTest, DispatchesAPartialBatchAtItsTurn) {
  EXPECT_EQ(dispatched(decide(slot(2, at(100), at(20), at(20)), at(20))), 2U);
}

TEST_F(DecideTest, DispatchesAtOnceAfterAnIdleCycle) {
  EXPECT_EQ(dispatched(decide(slot(1, at(150), at(20), at(100)), at(100))), 1U);
}

TEST_F(DecideTest, DispatchesBeforeTheEarliestDeadlineIsAtRisk) {
  // Two requests take 8 ms and may take 2 ms more: with a deadline at 24 they must be dispatched by
  // 14, before the turn at 20.
  SlotView view = slot(2, at(24), at(20), at(5));
  view.allowance = milliseconds(2);
  EXPECT_EQ(waits_until(decide(view, at(5))), at(14));
  view.start = at(14);
  EXPECT_EQ(dispatched(decide(view, at(14))), 2U);
}

TEST_F(DecideTest, ShrinksTheBatchToMeetTheEarliestDeadline) {
  // Only a batch of one (6 ms) ends by 27 when started at 20.
  EXPECT_EQ(dispatched(decide(slot(4, at(27), at(20), at(20)), at(20))), 1U);
}

TEST_F(DecideTest, CountsBatchesInFlightAgainstTheDeadline) {
  SlotView view = slot(4, at(30), at(0), at(10));
  view.start = at(20);  // the batch in flight ends then: 10 ms are left, enough for three
  EXPECT_EQ(dispatched(decide(view, at(10))), 3U);
}

TEST_F(DecideTest, HoldsAPartialBatchWhileAnotherRuns) {
  SlotView view = slot(3, at(60), at(20), at(22));
  view.start = at(30);
  view.bind = at(29);
  EXPECT_EQ(waits_until(decide(view, at(22))), at(29));
  EXPECT_EQ(dispatched(decide(view, at(29))), 3U);
  view.waiting = 4;
  EXPECT_EQ(dispatched(decide(view, at(22))), 4U);
}

TEST_F(DecideTest, LeavesRequestsToOtherSlotsWhileTheirDeadlinesAllow) {
  SlotView view = slot(4, at(60), at(20), at(22));
  view.yields = true;
  EXPECT_EQ(waits_until(decide(view, at(22))), at(48));
  view.start = at(48);
  EXPECT_EQ(dispatched(decide(view, at(48))), 4U);
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
  SlotView view;
  view.waiting = *rc::gen::inRange<std::size_t>(0, 40);
  view.execution = execution;
  view.turn = at(*rc::gen::inRange(0, 1200));
  view.start = now + milliseconds(*rc::gen::inRange(0, 50));
  view.allowance = milliseconds(*rc::gen::inRange(0, 5));
  view.bind = view.start - milliseconds(*rc::gen::inRange(0, 3));
  view.yields = *rc::gen::arbitrary<bool>();
  view.most_urgent =
      view.start + view.allowance + execution.front() + milliseconds(*rc::gen::inRange(0, 300));
  const Decision decision = decide(view, now);
  if (const auto* dispatch = std::get_if<Dispatch>(&decision)) {
    RC_ASSERT(dispatch->count >= 1U);
    RC_ASSERT(dispatch->count <= std::min(view.waiting, largest));
    // The batch is predicted to end in time.
    RC_ASSERT(view.start + view.allowance + execution[dispatch->count - 1] <= view.most_urgent);
  } else {
    RC_ASSERT(std::get<WaitUntil>(decision).time > now);
  }
}

// ---- shared devices

constexpr NeedRule kPaper{};  // the defaults are those of the paper

ModelNeed need(std::size_t queued, int waited_ms, std::optional<Duration> response = {},
               int device_ms = 10, int objective_ms = 100) {
  return {queued, milliseconds(waited_ms), milliseconds(device_ms), response,
          milliseconds(objective_ms)};
}

// ---- allowance

TEST(AllowanceTest, FollowsTheMeanErrorWhateverItsSpread) {
  Allowance allowance;
  for (int i = 0; i < 200; ++i)
    allowance.observe(milliseconds(i % 2 == 0 ? 9 : -5), milliseconds(100));
  EXPECT_GE(allowance.for_execution(milliseconds(100)), milliseconds(1));
  EXPECT_LE(allowance.for_execution(milliseconds(100)), milliseconds(3));
}

TEST(AllowanceTest, StaysWithinItsBounds) {
  Allowance allowance;
  EXPECT_EQ(allowance.for_execution(milliseconds(8)), std::chrono::microseconds(500));
  for (int i = 0; i < 100; ++i) allowance.observe(milliseconds(500), milliseconds(8));
  EXPECT_EQ(allowance.for_execution(milliseconds(8)), milliseconds(4));
  for (int i = 0; i < 200; ++i) allowance.observe(milliseconds(-500), milliseconds(8));
  EXPECT_EQ(allowance.for_execution(milliseconds(8)), std::chrono::microseconds(500));
}

TEST(AllowanceTest, HardlyChangesWithOneStall) {
  Allowance allowance;
  allowance.observe(milliseconds(5000), milliseconds(40));
  EXPECT_LT(allowance.for_execution(milliseconds(40)), milliseconds(1));
}

// ---- several slots of a model

TEST(RateSplitTest, GivesEverySlotItsPart) {
  RateSplit split;
  std::vector<RateSplit::Slot> slots{{300, 0}, {90, 0}, {10, 0}};
  for (RateSplit::Slot& slot : slots) split.join(slot);
  std::vector<std::size_t> taken(slots.size());
  std::size_t all = 0;
  while (all < 40000) {
    for (std::size_t at = slots.size(); at-- > 0;) {  // the smallest one is asked first
      if (split.ahead(slots[at])) continue;
      split.take(slots[at], 4, 4);
      taken[at] += 4;
      all += 4;
    }
  }
  EXPECT_NEAR(static_cast<double>(taken[0]) / static_cast<double>(all), 0.75, 0.01);
  EXPECT_NEAR(static_cast<double>(taken[2]) / static_cast<double>(all), 0.025, 0.001);
}

TEST(RateSplitTest, ASlotThatCouldNotServeDoesNotCatchUp) {
  RateSplit split;
  RateSplit::Slot busy{100, 0};
  RateSplit::Slot away{100, 0};
  split.join(busy);
  split.join(away);
  for (int i = 0; i < 1000; ++i) split.take(busy, 8, 8);
  std::size_t alone = 0;
  while (split.ahead(busy)) {
    split.take(away, 8, 8);
    ++alone;
  }
  EXPECT_LE(alone, 6U);
}

TEST(RateSplitTest, ASlotWithoutAPlannedRateIsNeverAhead) {
  RateSplit split;
  RateSplit::Slot slot;
  split.join(slot);
  split.take(slot, 5, 8);
  EXPECT_FALSE(split.ahead(slot));
}

RC_GTEST_PROP(RateSplitProperty, OneSlotIsNeverAhead, ()) {
  RateSplit split;
  std::vector<RateSplit::Slot> slots(*rc::gen::inRange<std::size_t>(1, 6));
  for (RateSplit::Slot& slot : slots) {
    slot.rate = *rc::gen::inRange(1, 5000) / 10.0;
    split.join(slot);
  }
  for (int step = 0; step < 200; ++step) {
    const auto largest = *rc::gen::inRange<std::size_t>(1, 33);
    const auto at = *rc::gen::inRange<std::size_t>(0, slots.size());
    split.take(slots[at], *rc::gen::inRange<std::size_t>(1, largest + 1), largest);
    RC_ASSERT(std::any_of(slots.begin(), slots.end(),
                          [&](const auto& slot) { return !split.ahead(slot); }));
  }
}

TEST(NeedTest, QueuedRequestsCountWithTheirWaitAndTheRequestsBeforeThem) {
  // Five requests have waited 100 ms and will wait 0, 10, .. 40 ms more: 120 ms in the mean, half
  // above the set point of 80 ms.
  EXPECT_NEAR(need_of(need(5, 100), kPaper), 0.5, 1e-9);
}

TEST(NeedTest, WeighsQueuedAgainstAnsweredRequests) {
  EXPECT_NEAR(need_of(need(5, 100, milliseconds(200)), kPaper), 1.0, 1e-9);
  EXPECT_NEAR(need_of(need(5, 100, milliseconds(200)), {0.8, 1}), 0.5, 1e-9);
  EXPECT_NEAR(need_of(need(5, 100, milliseconds(200)), {0.8, 0}), 1.5, 1e-9);
}

TEST(NeedTest, IsZeroBelowTheSetPoint) {
  EXPECT_EQ(need_of(need(1, 20, milliseconds(30)), kPaper), 0);
}

TEST(NeedTest, TheModelWithTheLargestNeedIsNext) {
  const std::vector<ModelNeed> models{need(9, 10), need(2, 300), need(0, 0), need(3, 200)};
  EXPECT_EQ(neediest(models, kPaper, 0), 1U);
}

TEST(NeedTest, TiesGoToTheLongestQueueThenInTurn) {
  const std::vector<ModelNeed> calm{need(1, 1), need(3, 1), need(2, 1)};
  EXPECT_EQ(neediest(calm, kPaper, 1), 1U);
  const std::vector<ModelNeed> equal{need(1, 1), need(1, 1), need(1, 1)};
  EXPECT_EQ(neediest(equal, kPaper, 0), 1U);
  EXPECT_EQ(neediest(equal, kPaper, 2), 0U);
}

TEST(NeedTest, NoModelIsNextWithoutRequests) {
  const std::vector<ModelNeed> idle{need(0, 0), need(0, 0)};
  EXPECT_FALSE(neediest(idle, kPaper, 0));
  EXPECT_FALSE(next_in_turn(idle, 0));
  EXPECT_FALSE(neediest({}, kPaper, 0));
}

TEST(NeedTest, InTurnSkipsEmptyQueues) {
  const std::vector<ModelNeed> models{need(1, 0), need(0, 0), need(4, 0)};
  EXPECT_EQ(next_in_turn(models, 0), 2U);
  EXPECT_EQ(next_in_turn(models, 2), 0U);
}

RC_GTEST_PROP(NeedProperty, NoModelHasALargerNeedThanTheChosenOne, ()) {
  std::vector<ModelNeed> models;
  const auto count = *rc::gen::inRange<std::size_t>(1, 6);
  for (std::size_t i = 0; i < count; ++i) {
    models.push_back(need(*rc::gen::inRange<std::size_t>(0, 20), *rc::gen::inRange(0, 500),
                          milliseconds(*rc::gen::inRange(0, 500)), *rc::gen::inRange(1, 50),
                          *rc::gen::inRange(1, 300)));
  }
  const auto chosen = neediest(models, kPaper, *rc::gen::inRange<std::size_t>(0, count));
  for (const ModelNeed& model : models) {
    if (model.queued == 0) continue;
    RC_ASSERT(chosen.has_value());
    RC_ASSERT(need_of(models[*chosen], kPaper) >= need_of(model, kPaper));
  }
}

}  // namespace
}  // namespace gpulet::batching
