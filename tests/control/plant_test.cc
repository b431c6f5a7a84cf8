// Pole placement, margins, identification, the PI controller, and the division of cores.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

#include "gpulet/base/random.h"
#include "gpulet/control/node_control.h"
#include "tests/control/queue.h"

namespace gpulet::control {
namespace {

// (z - 1)^2 + k K (z - a) (z - b), whose roots are the closed loop's poles.
struct ClosedLoop {
  double square;
  double linear;
  double constant;

  ClosedLoop(const Plant& plant, const PiGains& gains) {
    const double both = plant.gain_s_per_core * gains.gain_cores_per_s;
    square = 1 + both;
    linear = -2 - both * (gains.zero + plant.zero);
    constant = 1 + both * gains.zero * plant.zero;
  }

  [[nodiscard]] double at(double z) const { return (square * z + linear) * z + constant; }
  [[nodiscard]] double slope_at(double z) const { return 2 * square * z + linear; }
};

// The distance of the response from its set point in a loop with one period of delay and a constant
// disturbance.
double distance_after(const Plant& plant, const PiGains& gains, int periods) {
  double error = 0;
  double cores = 0;
  double cores_before = 0;
  for (int period = 0; period < periods; ++period) {
    const double error_before = error;
    error += 0.01 - plant.gain_s_per_core * (cores - plant.zero * cores_before);
    cores_before = cores;
    cores += gains.gain_cores_per_s * (error - gains.zero * error_before);
  }
  return std::abs(error);
}

TEST(PolePlacement, PlacesBothPoles) {
  const Plant plant{0.5, 0.2};
  const PiGains gains = place_poles(plant, 0.7).value();
  EXPECT_GT(gains.gain_cores_per_s, 0);
  const ClosedLoop loop(plant, gains);
  EXPECT_NEAR(loop.at(0.7), 0, 1e-12);
  EXPECT_NEAR(loop.slope_at(0.7), 0, 1e-12);
}

RC_GTEST_PROP(PolePlacement, PlacesBothPolesForAllValidPlants, (std::uint64_t seed)) {
  Random random(seed);
  const Plant plant{0.01 + 5 * random.uniform(), 1 - 3 * random.uniform(), 1};
  const double pole = random.uniform();
  const Result<PiGains> gains = place_poles(plant, pole);
  if (!gains.ok()) {
    RC_ASSERT(pole <= 2 * plant.zero - 1 + 1e-6 || std::abs(pole - plant.zero) < 1e-6);
    return;
  }
  RC_ASSERT(gains.value().gain_cores_per_s > 0);
  const ClosedLoop loop(plant, gains.value());
  RC_ASSERT(std::abs(loop.at(pole)) < 1e-6 * loop.square);
  RC_ASSERT(std::abs(loop.slope_at(pole)) < 1e-6 * loop.square);
  RC_ASSERT(margins(plant, gains.value(), 0).stable);
}

RC_GTEST_PROP(PolePlacement, ChoosesGainsWithMarginsForADelayedLoop, (std::uint64_t seed)) {
  Random random(seed);
  const Plant plant{0.01 + 5 * random.uniform(), 2 * random.uniform() - 1.05, 1};
  const Result<PiGains> gains = choose_gains(plant, 0.98 * random.uniform());
  RC_ASSERT(gains.ok());
  const Margins found = margins(plant, gains.value(), 1);
  RC_ASSERT(found.stable);
  RC_ASSERT(found.gain > kLeastGainMargin - 1e-3);
  RC_ASSERT(found.phase_deg >= kLeastPhaseMarginDeg);
  RC_ASSERT(found.delay_periods > 0);
}

TEST(PolePlacement, RefusesInvalidPlantsAndPoles) {
  EXPECT_EQ(place_poles({0, 0.2}, 0.5).status().code(), StatusCode::invalid) << "no gain";
  EXPECT_FALSE(place_poles({0.5, 1}, 0.5).ok());
  EXPECT_FALSE(place_poles({0.5, 0.2}, 1).ok());
  EXPECT_FALSE(place_poles({0.5, 0.9}, 0.5).ok()) << "no positive gain";
  EXPECT_FALSE(place_poles({0.5, 0.3}, 0.3).ok()) << "an infinite gain";
  EXPECT_FALSE(place_poles({0.5, 0.2}, -0.1).ok());
  EXPECT_TRUE(place_poles({0.5, 0.2}, 0).ok());
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(place_poles({kInfinite, 0.2}, 0.5).ok());
  EXPECT_FALSE(place_poles({0.5, -kInfinite}, 0.5).ok());
  EXPECT_FALSE(choose_gains({0.5, 1.5}, 0.5).ok());
  // A zero of 1 cancels the integrator. No loop is stable then, but rounding may make one look so.
  for (int at = 1; at <= 100; ++at) {
    EXPECT_EQ(choose_gains({0.01 * at, 1}, 0.5).status().code(), StatusCode::invalid) << at;
  }
}

TEST(Margins, PredictWhereALoopBecomesUnstable) {
  const Plant plant{1.4, 0.286};
  const PiGains gains = choose_gains(plant, 0.5).value();
  const Margins found = margins(plant, gains, 1);
  const auto times = [&](double factor) {
    return PiGains{gains.gain_cores_per_s * factor, gains.zero};
  };
  EXPECT_TRUE(margins(plant, times(found.gain * 0.99), 1).stable);
  EXPECT_FALSE(margins(plant, times(found.gain * 1.01), 1).stable);
  EXPECT_LT(distance_after(plant, times(found.gain * 0.98), 2000), 1e-3);
  EXPECT_GT(distance_after(plant, times(found.gain * 1.02), 2000), 1e3);

  // The loop stays stable with a delay of the whole periods of its margin, but not with one more.
  const auto worth = static_cast<unsigned>(found.delay_periods);
  EXPECT_TRUE(margins(plant, gains, 1 + worth).stable);
  EXPECT_FALSE(margins(plant, gains, 2 + worth).stable);
}

// The highest frequency is pi per period: half of the sampling rate. Beyond it is only the mirror
// image of the loop.
TEST(Margins, ACrossingNearTheHighestFrequencyCountsOnce) {
  constexpr double kFrequency = 0.97 * std::numbers::pi;
  const std::complex<double> z = std::polar(1.0, kFrequency);
  const std::complex<double> of_gain_1 = z * (z - 0.5) / ((z - 1.0) * (z - 1.0));
  const Plant plant{1, 0};
  const PiGains gains{1 / std::abs(of_gain_1), 0.5};  // so that the gain is 1 there
  const double phase = std::numbers::pi + std::arg(of_gain_1);
  const Margins found = margins(plant, gains, 0);
  EXPECT_TRUE(found.stable);
  EXPECT_NEAR(found.phase_deg, phase * 180 / std::numbers::pi, 1e-6);
  EXPECT_NEAR(found.delay_periods, phase / kFrequency, 1e-9);
  // By hand: the closed loop with one period of delay has its poles inside the unit circle.
  EXPECT_GT(found.delay_periods, 1);
  EXPECT_TRUE(margins(plant, gains, 1).stable);
}

// The distance of the response from its set point where the controller sees the mean over the last
// `window` periods, as in distance_after().
double distance_by_window_after(const Plant& plant, const PiGains& gains, std::size_t window,
                                int periods) {
  std::vector<double> errors(window, 0.0);  // the last one in front
  double cores = 0;
  double cores_before = 0;
  double seen = 0;
  for (int period = 0; period < periods; ++period) {
    const double error =
        errors.front() + 0.01 - plant.gain_s_per_core * (cores - plant.zero * cores_before);
    errors.insert(errors.begin(), error);
    errors.pop_back();
    const double seen_before = seen;
    seen = std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(window);
    cores_before = cores;
    cores += gains.gain_cores_per_s * (seen - gains.zero * seen_before);
  }
  return std::abs(errors.front());
}

TEST(Margins, PredictWhereALoopWithAWindowBecomesUnstable) {
  const Plant plant = plant_of_queue(1);
  for (const unsigned window : {2U, 5U, 10U}) {
    const PiGains gains = choose_gains(plant, 0.5, window).value();
    const Margins found = margins(plant, gains, 1, window);
    const auto times = [&](double factor) {
      return PiGains{gains.gain_cores_per_s * factor, gains.zero};
    };
    EXPECT_GE(found.gain, kLeastGainMargin - 1e-3) << window;
    EXPECT_GE(found.phase_deg, kLeastPhaseMarginDeg) << window;
    EXPECT_LT(distance_by_window_after(plant, times(found.gain * 0.95), window, 4000), 1e-3)
        << window;
    EXPECT_GT(distance_by_window_after(plant, times(found.gain * 1.05), window, 4000), 1e3)
        << window;
  }
}

TEST(Margins, GainsForOnePeriodAreUnstableWithALongWindow) {
  const Plant plant = plant_of_queue(1);
  const PiGains gains = choose_gains(plant, 0.5).value();
  EXPECT_TRUE(margins(plant, gains, 1, 1).stable);
  EXPECT_FALSE(margins(plant, gains, 1, 10).stable);
  EXPECT_GT(distance_by_window_after(plant, gains, 10, 2000), 1e3);
}

TEST(Margins, PlacedPolesMayBeUnstableWithADelay) {
  const Plant plant{1.4, 0.286};
  const PiGains gains = place_poles(plant, 0.5).value();
  EXPECT_TRUE(margins(plant, gains, 0).stable);
  EXPECT_TRUE(std::isinf(margins(plant, gains, 0).gain));
  EXPECT_FALSE(margins(plant, gains, 1).stable);
  EXPECT_EQ(margins(plant, gains, 1).gain, 0);
}

TEST(Identify, FindsThePlantOfARun) {
  const Plant made{0.7, 0.3};
  std::vector<Sample> run{{2, 0.4}};
  for (const double cores : {2.0, 1.5, 1.5, 3.0, 3.0, 2.0, 1.0, 2.5, 2.0, 2.0}) {
    const double change = -made.gain_s_per_core * (cores - made.zero * run.back().cores) + 1;
    run.push_back({cores, run.back().response_s + change});
  }
  const Identified found = identify(run).value();
  EXPECT_NEAR(found.plant.gain_s_per_core, made.gain_s_per_core, 1e-9);
  EXPECT_NEAR(found.plant.zero, made.zero, 1e-9);
  EXPECT_NEAR(found.plant.at_cores, 22.5 / 11, 1e-9);
  EXPECT_NEAR(found.explained, 1, 1e-9);
}

// Keeps the queue near its set point, so that it neither empties nor grows without bound.
TEST(Identify, FindsThePlantOfAQueue) {
  Queue queue(Load{});
  queue.run(1.2);
  std::vector<Sample> run;
  for (int period = 0; period < 60; ++period) {
    constexpr std::array kAround{-0.2, -0.2, 0.2, 0.2, 0.3, -0.3, -0.1, -0.2, 0.3, 0.0};
    const double cores = queue.needed_cores() + kAround[static_cast<std::size_t>(period % 10)];
    run.push_back({cores, queue.run(cores).response_s});
  }
  const Identified found = identify(run).value();
  const Plant expected = plant_of_queue(1);
  EXPECT_GT(found.explained, 0.95);
  EXPECT_NEAR(found.plant.zero, expected.zero, 0.1);
  EXPECT_NEAR(found.plant.gain_s_per_core * found.plant.at_cores, expected.gain_s_per_core, 0.05);
}

TEST(Identify, RefusesRunsWithoutInformation) {
  EXPECT_FALSE(identify(std::vector<Sample>(7)).ok()) << "too short";
  EXPECT_FALSE(identify(std::vector<Sample>(20, Sample{1, 0.2})).ok()) << "the same cores";
  std::vector<Sample> rises;
  double response_s = 0;
  for (const double cores : {1.0, 2.0, 2.0, 1.0, 3.0, 1.0, 1.0, 2.0, 3.0, 1.0}) {
    response_s += cores - 1.7;
    rises.push_back({cores, response_s});
  }
  EXPECT_EQ(identify(rises).status().code(), StatusCode::invalid) << "rises with the cores";
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

TEST(Grant, FollowsAlgorithmTwo) {
  EXPECT_EQ(grant({1, 3}, 2, 0).cores, (std::vector<double>{0.5, 1.5})) << "contention";
  EXPECT_EQ(grant({1, 3}, 2, 0).contention, 0.5);
  EXPECT_EQ(grant({1, 3}, 8, 0).cores, (std::vector<double>{1, 3})) << "no surplus";
  EXPECT_EQ(grant({1, 3}, 8, 1).cores, (std::vector<double>{2, 6})) << "all cores";
  EXPECT_EQ(grant({1, 3}, 8, 0.5).cores, (std::vector<double>{1.5, 4.5}));
  EXPECT_EQ(grant({}, 8, 0).contention, 0);
}

RC_GTEST_PROP(Grant, NeverExceedsTheAvailableCores, (std::uint64_t seed)) {
  Random random(seed);
  std::vector<double> requested(1 + random.below(20));
  for (double& cores : requested) cores = 0.1 + 6 * random.uniform();
  const double available = 0.1 + 30 * random.uniform();
  const double surplus = random.below(3) == 0 ? 1 : random.uniform();
  const Granted granted = grant(requested, available, surplus);
  const double rounding = 1e-9 * available;
  RC_ASSERT(sum(granted.cores) <= available + rounding);
  if (sum(requested) <= available) RC_ASSERT(sum(granted.cores) >= sum(requested) - rounding);
  if (sum(requested) >= available || surplus == 1) {
    RC_ASSERT(std::abs(sum(granted.cores) - available) <= rounding);
  }
  for (std::size_t at = 0; at < requested.size(); ++at) {
    RC_ASSERT(std::abs(granted.cores[at] * requested[0] - granted.cores[0] * requested[at]) < 1e-6);
  }
}

TEST(PiController, HasNoWindupAtItsBounds) {
  PiController controller({1, 0.5}, {0.1, 4}, 2);
  for (int period = 0; period < 100; ++period) {
    const double requested = controller.request(10);
    EXPECT_LE(requested, 4);
    controller.set_granted(requested);
  }
  EXPECT_EQ(controller.cores(), 4);
  EXPECT_LT(controller.request(1), 4) << "at once";
}

TEST(PiController, ChangesInProportionToItsCores) {
  PiController few({1, 0.5, 1}, {0.1, 10}, 0.5);
  PiController many({1, 0.5, 1}, {0.1, 10}, 4);
  EXPECT_DOUBLE_EQ(few.request(0.2), 0.5 + 0.1);
  EXPECT_DOUBLE_EQ(many.request(0.2), 4 + 0.8);
}

}  // namespace
}  // namespace gpulet::control
