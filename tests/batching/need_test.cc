#include "gpulet/batching/need.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace gpulet::batching {
namespace {

using std::chrono::milliseconds;

constexpr NeedRule kPaper{};  // a set point of 0.8, and as much weight for what waits

ModelNeed need(std::size_t queued, int waited_ms, std::optional<Duration> response = {},
               int device_ms = 10, int objective_ms = 100) {
  return {queued, milliseconds(waited_ms), milliseconds(device_ms), response,
          milliseconds(objective_ms)};
}

TEST(NeedTest, WhatWaitsCountsWithItsWaitAndWhatIsBeforeIt) {
  // Five that have waited 100 ms, and wait 0, 10, .. 40 ms more: 120 ms, half above 80 ms.
  EXPECT_NEAR(need_of(need(5, 100), kPaper), 0.5, 1e-9);
}

TEST(NeedTest, WhatWaitsAndWhatWasAnsweredAreWeighed) {
  EXPECT_NEAR(need_of(need(5, 100, milliseconds(200)), kPaper), 1.0, 1e-9);
  EXPECT_NEAR(need_of(need(5, 100, milliseconds(200)), {0.8, 1}), 0.5, 1e-9);
  EXPECT_NEAR(need_of(need(5, 100, milliseconds(200)), {0.8, 0}), 1.5, 1e-9);
}

TEST(NeedTest, BelowTheSetPointNobodyIsInNeed) {
  EXPECT_EQ(need_of(need(1, 20, milliseconds(30)), kPaper), 0);
}

TEST(NeedTest, TheNeediestIsNext) {
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

TEST(NeedTest, NobodyIsNextWhereNobodyWaits) {
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

RC_GTEST_PROP(NeedProperty, NobodyIsInMoreNeedThanTheNeediest, ()) {
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
