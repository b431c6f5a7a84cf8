#include "gpulet/observe/log_limiter.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <optional>
#include <string>

namespace gpulet::observe {
namespace {

Time at_second(double after_s) { return Time() + from_seconds(after_s); }

TEST(LogRateLimiter, AdmitsABurstThenOneMessagePerIntervalWithTheSuppressedCount) {
  LogRateLimiter limiter({2, std::chrono::seconds(10), 16});
  EXPECT_EQ(limiter.admit("a", "x", at_second(0)), 0U);
  EXPECT_EQ(limiter.admit("a", "x", at_second(0)), 0U);
  EXPECT_EQ(limiter.admit("a", "x", at_second(0)), std::nullopt);
  EXPECT_EQ(limiter.admit("a", "x", at_second(5)), std::nullopt);
  EXPECT_EQ(limiter.admit("a", "x", at_second(10)), 2U);
  EXPECT_EQ(limiter.admit("a", "x", at_second(11)), std::nullopt);
}

TEST(LogRateLimiter, LimitsEachPeerAndKindSeparately) {
  LogRateLimiter limiter({1, std::chrono::seconds(10), 16});
  EXPECT_TRUE(limiter.admit("a", "x", at_second(0)));
  EXPECT_FALSE(limiter.admit("a", "x", at_second(0)));
  EXPECT_TRUE(limiter.admit("a", "y", at_second(0)));
  EXPECT_TRUE(limiter.admit("b", "x", at_second(0)));
}

TEST(LogRateLimiter, ReturnsTheSuppressedCountAfterAnIntervalWithoutMessages) {
  LogRateLimiter limiter({1, std::chrono::seconds(10), 16});
  for (int i = 0; i < 8; ++i) (void)limiter.admit("a", "x", at_second(0));
  EXPECT_TRUE(limiter.has_suppressed());
  EXPECT_TRUE(limiter.take_suppressed(at_second(9)).empty());
  const auto suppressed = limiter.take_suppressed(at_second(11));
  ASSERT_EQ(suppressed.size(), 1U);
  EXPECT_EQ(suppressed[0].peer, "a");
  EXPECT_EQ(suppressed[0].kind, "x");
  EXPECT_EQ(suppressed[0].count, 7U);
  EXPECT_FALSE(limiter.has_suppressed());
  (void)limiter.take_suppressed(at_second(30));
  EXPECT_EQ(limiter.size(), 0U);
}

TEST(LogBackoff, DoublesItsIntervalUpToTheLongest) {
  LogBackoff backoff(std::chrono::seconds(1), std::chrono::seconds(3));
  EXPECT_TRUE(backoff.due(at_second(0)));
  EXPECT_FALSE(backoff.due(at_second(0.5)));
  EXPECT_TRUE(backoff.due(at_second(1)));
  EXPECT_FALSE(backoff.due(at_second(2.9)));
  EXPECT_TRUE(backoff.due(at_second(3)));
  EXPECT_FALSE(backoff.due(at_second(5.9)));
  EXPECT_TRUE(backoff.due(at_second(6)));
  backoff.reset();
  EXPECT_TRUE(backoff.due(at_second(6)));
}

RC_GTEST_PROP(LogRateLimiter, CountsEveryMessageInBoundedMemory, ()) {
  const LogRateLimits limits{*rc::gen::inRange<std::uint32_t>(1, 5), std::chrono::seconds(10), 8};
  LogRateLimiter limiter(limits);
  std::uint64_t caused = 0;
  std::uint64_t admitted = 0;
  std::uint64_t counted = 0;
  double now = 0;
  const int steps = *rc::gen::inRange(1, 300);
  for (int i = 0; i < steps; ++i) {
    now += *rc::gen::inRange(0, 3000) / 1000.0;
    const std::string peer = std::to_string(*rc::gen::inRange(0, 20));
    ++caused;
    if (const auto before = limiter.admit(peer, "x", at_second(now))) {
      ++admitted;
      counted += *before;
    }
    RC_ASSERT(limiter.size() <= limits.max_entries + 1);
  }
  for (const auto& suppressed : limiter.take_suppressed(at_second(now + 1000)))
    counted += suppressed.count;
  RC_ASSERT(caused == admitted + counted);
}

}  // namespace
}  // namespace gpulet::observe
