#include "serve/adapt/corrections.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>

#include "gpulet/base/random.h"

namespace gpulet::serve::corrections_test {
namespace {

constexpr Time kStart{std::chrono::seconds(100)};
constexpr Duration kAlone = std::chrono::milliseconds(10);
constexpr CorrectionTimes kTimes{};  // a period of 20 s

// Batches that take `pace` times as long as alone, at 50 per second, for some seconds.
struct Pacer {
  Time now = kStart;
  double slowdown = 1;  // as planned
  double changes = 0;   // of the factor
  double last = 1;

  void operator()(PaceEstimate& estimate, double seconds, const std::function<double()>& pace) {
    const Time end = now + from_seconds(seconds);
    for (int batch = 1; now < end; ++batch) {
      now += std::chrono::milliseconds(20);
      estimate.add({from_seconds(to_seconds(kAlone) * pace()), kAlone,
                    from_seconds(to_seconds(kAlone) * slowdown)},
                   now);
      if (batch % 25 == 0) estimate.tick(now);
      if (estimate.factor() != last) ++changes;
      last = estimate.factor();
    }
  }
  void operator()(PaceEstimate& estimate, double seconds, double pace) {
    (*this)(estimate, seconds, [pace] { return pace; });
  }
};

TEST(PaceEstimate, RisesAfterSecondsAndFallsAfterAPeriod) {
  PaceEstimate estimate(kTimes, 1, kStart);
  Pacer run;
  run(estimate, 30, 1);
  EXPECT_EQ(estimate.factor(), 1);
  run(estimate, 6, 1.8);
  EXPECT_NEAR(estimate.factor(), 1.8, 0.06);
  EXPECT_EQ(run.changes, 1) << "one change of the pace, one of the factor";
  run(estimate, 15, 1);
  EXPECT_GT(estimate.factor(), 1.7) << "slow to forget";
  run(estimate, 15, 1);
  EXPECT_NEAR(estimate.factor(), 1, 0.03);
  run(estimate, 30, 0.7);
  EXPECT_NEAR(estimate.factor(), 0.7, 0.03);
  run(estimate, 6, 1);
  EXPECT_NEAR(estimate.factor(), 1, 0.05) << "as quick to rise from below";
}

TEST(PaceEstimate, TakesTheTimeBesidePlannedNeighboursAsPredicted) {
  PaceEstimate estimate(kTimes, 1, kStart);
  Pacer run;
  run.slowdown = 1.5;
  for (const double pace : {1.0, 1.2, 1.5}) run(estimate, 25, pace);
  EXPECT_EQ(estimate.factor(), 1);
  run(estimate, 10, 1.8);
  EXPECT_NEAR(estimate.factor(), 1.2, 0.05);
}

TEST(PaceEstimate, IgnoresOutliersFewBatchesAndNoise) {
  PaceEstimate outliers(kTimes, 1, kStart);
  Pacer run;
  int batch = 0;
  run(outliers, 60, [&batch] { return ++batch % 50 == 0 ? 30.0 : 1.0; });
  EXPECT_EQ(outliers.factor(), 1);
  EXPECT_GT(outliers.tail(), 5) << "the tail tells";

  PaceEstimate few(kTimes, 1, kStart);
  few.add({4 * kAlone, kAlone, kAlone}, kStart);
  for (int second = 1; second < 60; ++second) few.tick(kStart + std::chrono::seconds(second));
  EXPECT_EQ(few.factor(), 1);
  EXPECT_EQ(few.tail(), 0);

  for (const double cv : {0.05, 0.3}) {
    PaceEstimate noisy(kTimes, 1, kStart);
    Pacer hour;
    Random random(7);
    hour(noisy, 3600, [&random, cv] { return random.log_normal(cv); });
    EXPECT_EQ(hour.changes, 0) << cv;
  }
}

TEST(PaceEstimate, DifferencesBelowATimersPrecisionDoNotCount) {
  PaceEstimate estimate(kTimes, 1, kStart);
  const Duration alone = std::chrono::microseconds(400);
  Time now = kStart;
  for (int i = 0; i < 2000; ++i) {
    now += std::chrono::milliseconds(20);
    estimate.add({alone + std::chrono::microseconds(150), alone, alone}, now);
    estimate.tick(now);
  }
  EXPECT_EQ(estimate.factor(), 1);
}

RC_GTEST_PROP(PaceEstimate, IsBoundedAndConverges, ()) {
  const double pace = *rc::gen::inRange(5, 3000) / 100.0;
  const double before = *rc::gen::inRange(50, 800) / 100.0;
  PaceEstimate estimate(kTimes, before, kStart);
  Pacer run;
  for (int i = 0; i < 60; ++i) {
    run(estimate, 1, pace);
    RC_ASSERT(estimate.factor() >= kLeastCorrection);
    RC_ASSERT(estimate.factor() <= kMostCorrection);
  }
  const double expected = std::clamp(pace, kLeastCorrection, kMostCorrection);
  RC_ASSERT(std::abs(estimate.factor() - expected) <= 0.06 * expected);
}

// ---- several places

struct Places {
  CorrectionEstimator estimator{kTimes};
  Time now = kStart;

  void run(const ObservedPlace& place, double seconds, double pace) {
    const Time end = now + from_seconds(seconds);
    while (now < end) {
      now += std::chrono::milliseconds(20);
      estimator.at(place, now).add({from_seconds(to_seconds(kAlone) * pace), kAlone, kAlone}, now);
      estimator.tick(now);
    }
  }
};

TEST(CorrectionEstimator, TheLargestFactorCountsAndOtherSizesFollow) {
  Places places;
  places.run({"b", "card", Share{40}, {"n0", 0}}, 10, 1);
  places.run({"a", "card", Share{40}, {"n0", 0}}, 10, 1.5);
  places.run({"a", "card", Share{40}, {"n0", 1}}, 30, 1);
  places.run({"b", "card", Share{40}, {"n0", 1}}, 10, 1);
  const profile::Corrections corrections = places.estimator.corrections();
  EXPECT_NEAR(factor_of(corrections, "card", "a", Share{40}), 1.5, 0.05);
  EXPECT_NEAR(factor_of(corrections, "card", "a", Share{100}), 1.5, 0.05) << "no batches there";
  EXPECT_EQ(corrections.at("card").count("b"), 0U);
  const std::vector<CorrectionStatus> status = places.estimator.status();
  ASSERT_EQ(status.size(), 2U);
  EXPECT_EQ(status[0].slowest, (schedule::DeviceKey{"n0", 0}));
  EXPECT_EQ(status[0].batches, 2000U);
}

TEST(CorrectionEstimator, ASlowDeviceDoesNotCount) {
  Places places;
  places.run({"a", "card", Share{40}, {"n0", 0}}, 10, 1.5);
  places.run({"a", "card", Share{40}, {"n0", 1}}, 30, 1);
  EXPECT_TRUE(places.estimator.corrections().empty());
  EXPECT_NEAR(slowness_of(places.estimator.slow_devices(), {"n0", 0}), 1.5, 0.05);
  EXPECT_NEAR(places.estimator.status().at(0).factor, 1.5, 0.05) << "as observed";
  // A new place there begins slow, one elsewhere does not.
  EXPECT_NEAR(places.estimator.at({"a", "card", Share{60}, {"n0", 0}}, places.now).factor(), 1.5,
              0.05);
  EXPECT_EQ(places.estimator.at({"a", "card", Share{60}, {"n0", 2}}, places.now).factor(), 1);
}

TEST(CorrectionEstimator, ANewPlaceBeginsWithWhatIsKnown) {
  Places places;
  places.run({"a", "card", Share{40}, {"n0", 0}}, 10, 1.5);
  const double known =
      places.estimator.at({"a", "card", Share{40}, {"n0", 0}}, places.now).factor();
  EXPECT_EQ(places.estimator.at({"a", "card", Share{60}, {"n0", 0}}, places.now).factor(), known);
  EXPECT_EQ(places.estimator.at({"a", "card", Share{40}, {"n1", 0}}, places.now).factor(), known);
  EXPECT_EQ(places.estimator.at({"a", "other", Share{40}, {"n0", 0}}, places.now).factor(), 1);
  EXPECT_EQ(places.estimator.at({"b", "card", Share{40}, {"n0", 0}}, places.now).factor(), 1);
}

TEST(CorrectionEstimator, ForgetsPlacesWithoutBatches) {
  Places places;
  places.run({"a", "card", Share{40}, {"n0", 0}}, 10, 1.5);
  EXPECT_FALSE(places.estimator.tick(places.now + std::chrono::minutes(9)));
  EXPECT_FALSE(places.estimator.corrections().empty());
  EXPECT_TRUE(places.estimator.tick(places.now + std::chrono::minutes(11)));
  EXPECT_TRUE(places.estimator.corrections().empty());
  places.run({"a", "card", Share{40}, {"n0", 0}}, 10, 1.5);
  places.estimator.forget("a");
  EXPECT_TRUE(places.estimator.corrections().empty());
}

}  // namespace
}  // namespace gpulet::serve::corrections_test
