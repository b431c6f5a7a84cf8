#include "gpulet/observe/warning_limiter.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <optional>
#include <string>

namespace gpulet::observe {
namespace {

Time at_second(double after_s) { return Time() + from_seconds(after_s); }

TEST(WarningLimiter, tells_some_at_once_and_then_one_in_a_while_with_the_count_of_the_rest) {
  WarningLimiter limiter({2, std::chrono::seconds(10), 16});
  EXPECT_EQ(limiter.tell("a", "x", at_second(0)), 0U);
  EXPECT_EQ(limiter.tell("a", "x", at_second(0)), 0U);
  EXPECT_EQ(limiter.tell("a", "x", at_second(0)), std::nullopt);
  EXPECT_EQ(limiter.tell("a", "x", at_second(5)), std::nullopt);
  EXPECT_EQ(limiter.tell("a", "x", at_second(10)), 2U);
  EXPECT_EQ(limiter.tell("a", "x", at_second(11)), std::nullopt);
}

TEST(WarningLimiter, tells_peers_and_kinds_apart) {
  WarningLimiter limiter({1, std::chrono::seconds(10), 16});
  EXPECT_TRUE(limiter.tell("a", "x", at_second(0)));
  EXPECT_FALSE(limiter.tell("a", "x", at_second(0)));
  EXPECT_TRUE(limiter.tell("a", "y", at_second(0)));
  EXPECT_TRUE(limiter.tell("b", "x", at_second(0)));
}

TEST(WarningLimiter, what_was_counted_is_told_once_it_is_quiet) {
  WarningLimiter limiter({1, std::chrono::seconds(10), 16});
  for (int i = 0; i < 8; ++i) (void)limiter.tell("a", "x", at_second(0));
  EXPECT_TRUE(limiter.holds_untold());
  EXPECT_TRUE(limiter.settle(at_second(9)).empty());
  const auto untold = limiter.settle(at_second(11));
  ASSERT_EQ(untold.size(), 1U);
  EXPECT_EQ(untold[0].peer, "a");
  EXPECT_EQ(untold[0].kind, "x");
  EXPECT_EQ(untold[0].count, 7U);
  EXPECT_FALSE(limiter.holds_untold());
  (void)limiter.settle(at_second(30));
  EXPECT_EQ(limiter.size(), 0U);
}

RC_GTEST_PROP(WarningLimiter, counts_every_one_and_stays_small, ()) {
  const WarningLimits limits{*rc::gen::inRange<std::uint32_t>(1, 5), std::chrono::seconds(10), 8};
  WarningLimiter limiter(limits);
  std::uint64_t caused = 0;
  std::uint64_t told = 0;
  std::uint64_t counted = 0;
  double now = 0;
  const int steps = *rc::gen::inRange(1, 300);
  for (int i = 0; i < steps; ++i) {
    now += *rc::gen::inRange(0, 3000) / 1000.0;
    const std::string peer = std::to_string(*rc::gen::inRange(0, 20));
    ++caused;
    if (const auto before = limiter.tell(peer, "x", at_second(now))) {
      ++told;
      counted += *before;
    }
    RC_ASSERT(limiter.size() <= limits.most + 1);
  }
  for (const auto& untold : limiter.settle(at_second(now + 1000))) counted += untold.count;
  RC_ASSERT(caused == told + counted);
}

}  // namespace
}  // namespace gpulet::observe
