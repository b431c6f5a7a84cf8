#include "frontend/heap_trimmer.h"

#include <gtest/gtest.h>

namespace gpulet::frontend {
namespace {

constexpr std::size_t kMegabyte = 1U << 20U;

constexpr Time after_seconds(std::size_t second) { return Time(std::chrono::seconds(second)); }

TEST(TrimDecisionTest, WaitsForTheEndOfALoad) {
  TrimDecision decision;
  EXPECT_FALSE(decision.trim_now(0.01, 40 * kMegabyte, after_seconds(11)));
  EXPECT_FALSE(decision.trim_now(0.9, 100 * kMegabyte, after_seconds(12)));
  EXPECT_FALSE(decision.trim_now(0.9, 40 * kMegabyte, after_seconds(13)));
  EXPECT_FALSE(decision.trim_now(0.01, 40 * kMegabyte, after_seconds(14)))
      << "it may be a short pause";
  EXPECT_TRUE(decision.trim_now(0.01, 40 * kMegabyte, after_seconds(15)));
}

TEST(TrimDecisionTest, WaitsUntilMemoryIsFreed) {
  TrimDecision decision;
  for (std::size_t second = 11; second < 20; ++second)
    EXPECT_FALSE(decision.trim_now(0.01, 10 * second * kMegabyte, after_seconds(second)))
        << "a load that keeps the loop calm goes on";
  EXPECT_TRUE(decision.trim_now(0.01, 40 * kMegabyte, after_seconds(21)));
}

TEST(TrimDecisionTest, IsNotRepeatedWhereItBringsNothing) {
  TrimDecision decision;
  (void)decision.trim_now(0, 100 * kMegabyte, after_seconds(10));
  ASSERT_TRUE(decision.trim_now(0, 90 * kMegabyte, after_seconds(11)));
  for (std::size_t second = 12; second < 60; ++second)
    EXPECT_FALSE(
        decision.trim_now(0, (second % 2 == 0 ? 92 : 90) * kMegabyte, after_seconds(second)));
  EXPECT_TRUE(decision.trim_now(0, 85 * kMegabyte, after_seconds(60)));
}

TEST(TrimDecisionTest, PausesBetweenTwoTrims) {
  TrimDecision decision;
  (void)decision.trim_now(0, 30 * kMegabyte, after_seconds(10));
  ASSERT_TRUE(decision.trim_now(0, 20 * kMegabyte, after_seconds(11)));
  EXPECT_FALSE(decision.trim_now(0, 10 * kMegabyte, after_seconds(12)));
  EXPECT_TRUE(decision.trim_now(0, 10 * kMegabyte, after_seconds(14)));
}

}  // namespace
}  // namespace gpulet::frontend
