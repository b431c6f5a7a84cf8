#include "frontend/heap_trimmer.h"

#include <gtest/gtest.h>

namespace gpulet::frontend {
namespace {

constexpr std::size_t kMegabyte = 1U << 20U;

constexpr Time at_s(int second) { return Time(std::chrono::seconds(second)); }

TEST(TrimDecisionTest, WaitsForTheEndOfALoad) {
  TrimDecision decision;
  EXPECT_FALSE(decision.trim_now(0.01, 50 * kMegabyte, at_s(11)));
  decision.trimmed(40 * kMegabyte);
  EXPECT_FALSE(decision.trim_now(0.9, 100 * kMegabyte, at_s(12)));
  EXPECT_FALSE(decision.trim_now(0.01, 100 * kMegabyte, at_s(13))) << "it may be a short pause";
  EXPECT_TRUE(decision.trim_now(0.01, 100 * kMegabyte, at_s(14)));
}

TEST(TrimDecisionTest, IsNotRepeatedWhereItBringsNothing) {
  TrimDecision decision;
  (void)decision.trim_now(0, 100 * kMegabyte, at_s(10));
  decision.trimmed(90 * kMegabyte);
  for (int second = 11; second < 60; ++second)
    EXPECT_FALSE(decision.trim_now(0, 91 * kMegabyte, at_s(second)));
  EXPECT_TRUE(decision.trim_now(0, 95 * kMegabyte, at_s(60)));
}

TEST(TrimDecisionTest, PausesBetweenTwoTrims) {
  TrimDecision decision;
  decision.trimmed(10 * kMegabyte);
  (void)decision.trim_now(0, 10 * kMegabyte, at_s(10));
  ASSERT_TRUE(decision.trim_now(0, 20 * kMegabyte, at_s(11)));
  decision.trimmed(10 * kMegabyte);
  EXPECT_FALSE(decision.trim_now(0, 20 * kMegabyte, at_s(12)));
  EXPECT_TRUE(decision.trim_now(0, 20 * kMegabyte, at_s(14)));
}

}  // namespace
}  // namespace gpulet::frontend
