#include "serve/deploy/demands.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gpulet/base/random.h"

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

// Models with Poisson arrivals at their configured rates, 0.2 to 10 per second.
class RandomArrivals {
 public:
  explicit RandomArrivals(std::size_t models) {
    for (std::size_t i = 0; i < models; ++i) {
      const double part = static_cast<double>(i) / static_cast<double>(models);
      models_.push_back(model("m" + std::to_string(i), 0.2 * std::pow(50, part)));
      next_s_.push_back(random_.exponential(1 / models_.back().configured_rate));
    }
    demands_ = Demands(models_, {});
    demands_.tick(Time(milliseconds(0)));
    demands_.planned(demands_.next(true));
  }

  // Plans whenever a rate leaves its band, and returns how often.
  std::size_t run(double seconds, double factor) {
    std::size_t plans = 0;
    for (const double end = now_s_ + seconds; now_s_ < end;) {
      now_s_ += 0.5;
      for (std::size_t i = 0; i < next_s_.size(); ++i) {
        for (; next_s_[i] < now_s_;
             next_s_[i] += random_.exponential(1 / (models_[i].configured_rate * factor)))
          demands_.arrived(i);
      }
      demands_.tick(Time(from_seconds(now_s_)));
      if (!demands_.above_plan() && !demands_.below_plan(true)) continue;
      ++plans;
      demands_.planned(demands_.next(true));
    }
    return plans;
  }

  [[nodiscard]] const Demands& demands() const { return demands_; }
  [[nodiscard]] double configured_rate(std::size_t model) const {
    return models_[model].configured_rate;
  }

 private:
  Random random_{1};
  std::vector<ServedModel> models_;
  std::vector<double> next_s_;  // the next arrival of each model
  Demands demands_{{}, {}};
  double now_s_ = 0;
};

TEST(Demands, ChanceTriggersNoPlanHoweverManyModelsThereAre) {
  RandomArrivals arrivals(1000);
  EXPECT_EQ(arrivals.run(3600, 1), 0U);
}

TEST(Demands, ALastingRiseIsNoticedAmongManyModels) {
  RandomArrivals arrivals(1000);
  arrivals.run(120, 2);
  // Those with 5 requests per second or more. At lower rates, chance hides the rise for longer.
  for (std::size_t model = 823; model < 1000; ++model)
    EXPECT_GE(arrivals.demands().rate_planned(model), 1.5 * arrivals.configured_rate(model));
}

// Without a configured rate, only the requests since the first one count.
TEST(Demands, TheRateOfAModelThatAwakesIsKnownWithinSeconds) {
  Demands demands({model("a", 0)}, {});
  demands.tick(Time(milliseconds(0)));
  demands.planned(demands.next(true));
  for (int half_second = 1; half_second <= 20; ++half_second) {
    for (int request = 0; request < 5; ++request) demands.arrived(0);
    demands.tick(Time(milliseconds(500 * half_second)));
    if (demands.above_plan()) demands.planned(demands.next(true));
  }
  EXPECT_GE(demands.rate_planned(0), 9);
}

// A plan that is made while the rate rises falls short of its end.
TEST(Demands, APlanMadeDuringAJumpIsCorrected) {
  Demands demands({model("a", 20)}, {});
  demands.tick(Time(milliseconds(0)));
  demands.planned(demands.next(true));
  for (int half_second = 1; half_second <= 40; ++half_second) {
    for (int request = 0; request < 50; ++request) demands.arrived(0);
    demands.tick(Time(milliseconds(500 * half_second)));
    // Planning takes a while.
    if (half_second % 4 == 0 && demands.above_plan()) demands.planned(demands.next(true));
  }
  EXPECT_GE(demands.rate_planned(0), 90);
}

// A plan that is made soon after a fall, for the rate then, is not followed by one for the rate
// before.
TEST(Demands, APlanMadeAfterAFallStands) {
  Demands demands({model("a", 100)}, {});
  demands.tick(Time(milliseconds(0)));
  demands.planned(demands.next(true));
  int tick = 0;
  const auto pass = [&](int requests) {
    for (int request = 0; request < requests; ++request) demands.arrived(0);
    demands.tick(Time(milliseconds(500 * ++tick)));
  };
  for (int half_second = 0; half_second < 200; ++half_second) pass(50);
  for (int half_second = 0; half_second < 16; ++half_second) pass(15);
  ASSERT_TRUE(demands.below_plan(false));
  demands.planned(demands.next(false));
  EXPECT_NEAR(demands.rate_planned(0), 33, 5);
  for (int half_second = 0; half_second < 60; ++half_second) {
    pass(15);
    EXPECT_LT(demands.next(true).front().rate, 45) << half_second;
    if (demands.above_plan()) demands.planned(demands.next(true));
  }
}

}  // namespace
}  // namespace gpulet::serve::demands_test
