#include "backend/reconnecting.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpulet::backend {
namespace {

using std::chrono::seconds;

Time at_s(int s) { return Time(seconds(s)); }

TEST(Reconnecting, TellsOnceThatNobodyIsThereThenRemindsMoreAndMoreSeldom) {
  Reconnecting reconnecting;
  std::vector<int> told;
  for (int s = 0; s <= 160; ++s) {
    if (reconnecting.absent(at_s(s))) told.push_back(s);
  }
  EXPECT_EQ(told, (std::vector{0, 10, 30, 70, 150}));
  EXPECT_EQ(reconnecting.welcomed(at_s(161)), seconds(161));
  EXPECT_EQ(reconnecting.welcomed(at_s(162)), Duration::zero()) << "it was there at once";
  EXPECT_TRUE(reconnecting.absent(at_s(170))) << "it is absent again";
}

TEST(Reconnecting, AsksAFrontendThatRefusesMoreAndMoreSeldom) {
  Reconnecting reconnecting;
  Duration before = reconnecting.ended(true);
  EXPECT_EQ(before, Reconnecting::kFirstPause);
  for (int i = 0; i < 10; ++i) {
    const Duration pause = reconnecting.ended(true);
    EXPECT_EQ(pause, std::min(2 * before, Reconnecting::kLongestPause));
    before = pause;
  }
}

TEST(Reconnecting, AsksAFrontendThatWelcomedItAtOnce) {
  Reconnecting reconnecting;
  EXPECT_EQ(reconnecting.ended(true), Reconnecting::kFirstPause);
  EXPECT_EQ(reconnecting.welcomed(at_s(1)), Duration::zero());
  EXPECT_EQ(reconnecting.ended(false), Duration::zero());
  EXPECT_EQ(reconnecting.ended(true), Reconnecting::kFirstPause) << "it begins anew";
}

}  // namespace
}  // namespace gpulet::backend
