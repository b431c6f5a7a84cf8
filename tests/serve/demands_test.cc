#include "serve/demands.h"

#include <gtest/gtest.h>

namespace gpulet::serve::demands_test {
namespace {

using std::chrono::milliseconds;

ServedModel model(const std::string& name, double rate) {
  ServedModel made;
  made.name = name;
  made.slo_ms = 100;
  made.configured_rate = rate;
  return made;
}

// Planned for 100 a second and growth, a model gets a steady 80: near enough to leave alone, unless
// another model lacks capacity.
TEST(Demands, UnusedRateIsReleasedSoonerIfThePlanLeavesDemandUnserved) {
  Demands demands({model("a", 100)}, {});
  demands.tick(Time(milliseconds(0)));
  demands.planned(demands.next(true));
  ASSERT_NEAR(demands.rate_planned(0), 110, 1e-9);
  for (int half_second = 1; half_second <= 400; ++half_second) {
    for (int request = 0; request < 40; ++request) demands.arrived(0);
    demands.tick(Time(milliseconds(500 * half_second)));
  }
  EXPECT_FALSE(demands.above_plan() || demands.below_plan(true));
  EXPECT_NEAR(demands.next(true).front().rate, 110, 1e-9);
  EXPECT_NEAR(demands.next(false).front().rate, 88, 0.1);
}

TEST(Demands, AJumpIsDetectedAtOnceAndItsEndLater) {
  Demands demands({model("a", 100)}, {});
  demands.tick(Time(milliseconds(0)));
  demands.planned(demands.next(true));
  int tick = 0;
  const auto seconds_of = [&](int requests_per_second, int seconds) {
    for (const int end = tick + 2 * seconds; tick < end;) {
      for (int request = 0; request < requests_per_second / 2; ++request) demands.arrived(0);
      demands.tick(Time(milliseconds(500 * ++tick)));
    }
  };
  seconds_of(100, 60);
  EXPECT_FALSE(demands.above_plan());
  seconds_of(400, 2);
  ASSERT_TRUE(demands.above_plan());
  EXPECT_EQ(demands.above_plan()->model, "a");
  seconds_of(400, 60);
  demands.planned(demands.next(true));
  seconds_of(100, 5);
  EXPECT_FALSE(demands.above_plan() || demands.below_plan(true));
  seconds_of(100, 60);
  EXPECT_TRUE(demands.above_plan() || demands.below_plan(true));
  EXPECT_LT(demands.next(true).front().rate, 150);
}

}  // namespace
}  // namespace gpulet::serve::demands_test
