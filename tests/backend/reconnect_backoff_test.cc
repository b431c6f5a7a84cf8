#include <gtest/gtest.h>

#include <vector>

#include "backend/frontend_link.h"

namespace gpulet::backend {
namespace {

using std::chrono::seconds;

Time at_s(int s) { return Time(seconds(s)); }

TEST(ReconnectBackoff, LogsOnceThenRemindsAtGrowingIntervals) {
  ReconnectBackoff backoff;
  std::vector<int> logged;
  for (int s = 0; s <= 160; ++s) {
    if (backoff.on_unreachable(at_s(s))) logged.push_back(s);
  }
  EXPECT_EQ(logged, (std::vector{0, 10, 30, 70, 150}));
  EXPECT_EQ(backoff.on_welcome(at_s(161)), seconds(161));
  EXPECT_EQ(backoff.on_welcome(at_s(162)), Duration::zero()) << "it was reachable at once";
  EXPECT_TRUE(backoff.on_unreachable(at_s(170))) << "it is unreachable again";
}

TEST(ReconnectBackoff, DoublesTheDelayAfterEachRefusal) {
  ReconnectBackoff backoff;
  Duration before = backoff.on_closed(true);
  EXPECT_EQ(before, ReconnectBackoff::kFirstDelay);
  for (int i = 0; i < 10; ++i) {
    const Duration delay = backoff.on_closed(true);
    EXPECT_EQ(delay, std::min(2 * before, ReconnectBackoff::kLongestDelay));
    before = delay;
  }
}

TEST(ReconnectBackoff, HasNoDelayAfterAWelcome) {
  ReconnectBackoff backoff;
  EXPECT_EQ(backoff.on_closed(true), ReconnectBackoff::kFirstDelay);
  EXPECT_EQ(backoff.on_welcome(at_s(1)), Duration::zero());
  EXPECT_EQ(backoff.on_closed(false), Duration::zero());
  EXPECT_EQ(backoff.on_closed(true), ReconnectBackoff::kFirstDelay) << "the delay starts again";
}

}  // namespace
}  // namespace gpulet::backend
