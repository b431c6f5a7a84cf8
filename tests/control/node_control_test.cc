// NodeControl in closed loop with queues in virtual time.
#include "gpulet/control/node_control.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <vector>

#include "tests/control/queue.h"

namespace gpulet::control {
namespace {

constexpr GpuletId kFirst{1};
constexpr GpuletId kSecond{2};
constexpr GpuletId kThird{3};

class Loop {
 public:
  explicit Loop(double node_cores, const Options& options = {}) : control_(options, node_cores) {}

  void serve(GpuletId id, const Load& load) {
    queues_.emplace(id, Queue(load));
    instances_.push_back({id, {}});
    control_.control(instances_);
  }

  // Returns the response times (s) of `watched`.
  std::vector<double> run(int periods, GpuletId watched = kFirst) {
    std::vector<double> responses;
    for (int period = 0; period < periods; ++period) {
      std::map<GpuletId, Reading> readings;
      for (auto& [id, queue] : queues_) {
        readings[id] = queue.run(control_.cores().at(id).granted);
        readings[id].alive = dead_ != id;
      }
      now_ += std::chrono::seconds(1);
      control_.step(readings, now_);
      responses.push_back(readings.at(watched).response_s);
    }
    return responses;
  }

  Queue& queue(GpuletId id = kFirst) { return queues_.at(id); }
  void dies(std::optional<GpuletId> id) { dead_ = id; }
  [[nodiscard]] const NodeControl& control() const { return control_; }
  [[nodiscard]] Cores cores(GpuletId id = kFirst) const { return control_.cores().at(id); }
  [[nodiscard]] double all_granted() const {
    double sum = 0;
    for (const auto& [id, cores] : control_.cores()) sum += cores.granted;
    return sum;
  }

 private:
  NodeControl control_;
  std::map<GpuletId, Queue> queues_;
  std::vector<Instance> instances_;
  std::optional<GpuletId> dead_;
  Time now_{};
};

// How often the response crosses its set point by more than a hundredth.
int crossings(const std::vector<double>& responses, double set_point_s) {
  int found = 0;
  int side = 0;
  for (const double response_s : responses) {
    const double of_set_point = response_s / set_point_s - 1;
    if (std::abs(of_set_point) < 0.01) continue;
    const int now = of_set_point > 0 ? 1 : -1;
    if (side != 0 && now != side) ++found;
    side = now;
  }
  return found;
}

// Periods until it stays within a fifth of its set point.
std::size_t settled_after(const std::vector<double>& responses, double set_point_s) {
  std::size_t after = responses.size();
  while (after > 0 && std::abs(responses[after - 1] / set_point_s - 1) <= 0.2) --after;
  return after;
}

struct Step {
  double from_rps;
  double to_rps;
};

class StepResponse : public ::testing::TestWithParam<Step> {};

TEST_P(StepResponse, SettlesWithoutOscillation) {
  Loop loop(12);
  loop.serve(kFirst, {.rate_rps = GetParam().from_rps});
  loop.run(80);
  const double set_point_s = loop.queue().set_point_s();
  EXPECT_NEAR(loop.cores().granted, loop.queue().needed_cores(), 0.05 * loop.cores().granted);

  loop.queue().change(GetParam().to_rps);
  std::vector<double> responses;
  double most_cores = 0;
  double least_cores = 12;
  for (int period = 0; period < 60; ++period) {
    responses.push_back(loop.run(1).front());
    most_cores = std::max(most_cores, loop.cores().granted);
    least_cores = std::min(least_cores, loop.cores().granted);
  }
  const double needed = loop.queue().needed_cores();
  const double highest_s = *std::max_element(responses.begin(), responses.end());
  const std::size_t settled = settled_after(responses, set_point_s);
  std::printf(
      "%g -> %g rps: response at most %.2f of the set point, cores %.2f to %.2f of those needed, "
      "within a fifth of the set point after %zu s, %d crossings\n",
      GetParam().from_rps, GetParam().to_rps, highest_s / set_point_s, least_cores / needed,
      most_cores / needed, settled, crossings(responses, set_point_s));
  const double at_first = GetParam().from_rps / GetParam().to_rps;
  EXPECT_LE(settled, 20U);
  EXPECT_LE(crossings(responses, set_point_s), 2);
  EXPECT_LE(most_cores / needed, std::max(1.6, 1.05 * at_first));
  EXPECT_GE(least_cores / needed, std::min(0.8, 0.95 * at_first));
}

INSTANTIATE_TEST_SUITE_P(Loads, StepResponse,
                         ::testing::Values(Step{20, 40}, Step{40, 20}, Step{20, 80}, Step{30, 20},
                                           Step{20, 30}));

TEST(NodeControl, HoldsPoissonArrivalsAroundTheSetPoint) {
  Loop loop(12);
  loop.serve(kFirst, {.chance = Random(7)});
  loop.run(60);
  const std::vector<double> responses = loop.run(600);
  double mean_s = 0;
  for (const double response_s : responses) mean_s += response_s / 600;
  std::printf("Poisson arrivals: mean %.3f s, set point %.3f s, %.2f cores, needed %.2f\n", mean_s,
              loop.queue().set_point_s(), loop.cores().granted, loop.queue().needed_cores());
  EXPECT_NEAR(mean_s, loop.queue().set_point_s(), 0.15 * loop.queue().set_point_s());
}

TEST(NodeControl, ReleasesCoresAtOnceAfterALongOverload) {
  Loop loop(4);
  loop.serve(kFirst, {});
  loop.run(60);
  loop.queue().change(100);
  loop.run(60);
  EXPECT_EQ(loop.cores(), (Cores{4, 4})) << "all cores";
  loop.queue().change(1);
  // Drains the queue with all cores; then the cores fall.
  int overloaded = 0;
  while (loop.run(1).front() > loop.queue().set_point_s()) ++overloaded;
  EXPECT_GT(overloaded, 10);
  EXPECT_LT(loop.cores().granted, 4);
  loop.run(40);
  EXPECT_LT(loop.cores().granted, 0.5);
}

TEST(NodeControl, SharesANodeThatIsTooSmall) {
  Loop loop(4);
  loop.serve(kFirst, {.rate_rps = 20});
  loop.serve(kSecond, {.rate_rps = 60});
  for (int period = 0; period < 100; ++period) {
    loop.run(1);
    EXPECT_LE(loop.all_granted(), 4 + 1e-9);
  }
  const double requested = loop.cores(kFirst).requested + loop.cores(kSecond).requested;
  EXPECT_LT(loop.control().contention(), 1);
  EXPECT_NEAR(loop.control().contention(), 4 / requested, 1e-9);
  EXPECT_NEAR(loop.all_granted(), 4, 1e-9);
}

TEST(NodeControl, ReservesCoresForGpus) {
  Loop loop(6, {.gpu_cores = 2});
  loop.serve(kFirst, {.rate_rps = 200});
  EXPECT_EQ(loop.cores(), (Cores{4, 4}));
  loop.run(30);
  EXPECT_EQ(loop.cores().granted, 4);
  EXPECT_EQ(loop.control().node_cores(), 6);
}

TEST(NodeControl, ReleasesTheCoresOfRequestsThatAGpuServes) {
  Loop loop(12);
  loop.serve(kFirst, {});
  loop.run(80);
  const double before = loop.cores().granted;
  loop.queue().change(20, 0.02);
  const std::vector<double> responses = loop.run(60);
  const double set_point_s = loop.queue().set_point_s();
  std::printf("a GPU takes half: %.2f cores, then %.2f; response at most %.2f of the set point\n",
              before, loop.cores().granted,
              *std::max_element(responses.begin(), responses.end()) / set_point_s);
  EXPECT_NEAR(loop.cores().granted, before / 2, 0.15 * before);
  EXPECT_LE(*std::max_element(responses.begin(), responses.end()), 2 * set_point_s);
}

TEST(NodeControl, ADeadInstanceKeepsItsStateAndReleasesItsCores) {
  Loop loop(4);
  loop.serve(kFirst, {.rate_rps = 25});
  loop.serve(kSecond, {.rate_rps = 25});
  loop.run(60);
  const Cores before = loop.cores(kFirst);
  const double others_before = loop.cores(kSecond).granted;
  EXPECT_LT(loop.control().contention(), 1);
  loop.dies(kFirst);
  loop.run(1);
  EXPECT_EQ(loop.cores(kFirst), Cores{});
  EXPECT_GT(loop.cores(kSecond).granted, others_before);
  loop.run(20);
  loop.dies(std::nullopt);
  loop.run(1);
  EXPECT_GE(loop.cores(kFirst).requested, before.granted) << "its queue has grown";
  EXPECT_GT(loop.cores(kFirst).granted, 0);
}

TEST(NodeControl, KnownInstancesKeepTheirStateWhenOthersAreAdded) {
  Loop loop(6);
  loop.serve(kFirst, {});
  loop.run(60);
  const Cores before = loop.cores(kFirst);
  loop.serve(kSecond, {});
  EXPECT_EQ(loop.cores(kFirst), before);
  EXPECT_EQ(loop.cores(kSecond), (Cores{3, 3})) << "half of the node";
}

TEST(NodeControl, ControlsEachInstanceWithTheGainsOfItsPlant) {
  const Options options;
  const Plant measured{1.4, 0.286, 2};
  const Plant unusable{1.4, 1.5, 2};  // a zero must be below 1
  const std::vector<Instance> instances{{kFirst, measured}, {kSecond, unusable}, {kThird, {}}};
  NodeControl control(options, 12);
  control.control(instances);
  control.step({{kFirst, {0.5, 0.5}}, {kSecond, {0.5, 0.5}}, {kThird, {0.5, 0.5}}}, Time{});

  const auto requested_with = [&options](const Plant& plant) {
    const PiGains gains = choose_gains(plant, options.pole).value();
    return PiController(gains, {options.least_cores, 12}, 4).request(0.5 - options.set_point * 0.5);
  };
  const Plant queue = plant_of_queue(to_seconds(options.period));
  ASSERT_GT(std::abs(requested_with(measured) - requested_with(queue)), 0.01);
  EXPECT_DOUBLE_EQ(control.cores().at(kFirst).requested, requested_with(measured));
  EXPECT_DOUBLE_EQ(control.cores().at(kSecond).requested, requested_with(queue));
  EXPECT_DOUBLE_EQ(control.cores().at(kThird).requested, requested_with(queue));
}

TEST(NodeControl, TheWindowHasAtLeastOnePeriodAndIsRoundedUp) {
  const auto periods = [](Duration window) {
    return window_periods({.period = std::chrono::milliseconds(500), .window = window});
  };
  EXPECT_EQ(window_periods({}), 1U);
  EXPECT_EQ(periods(std::chrono::milliseconds(100)), 1U);
  EXPECT_EQ(periods(std::chrono::milliseconds(500)), 1U);
  EXPECT_EQ(periods(std::chrono::milliseconds(501)), 2U);
  EXPECT_EQ(periods(std::chrono::seconds(10)), 20U);
}

// The cores that a new instance on a node of 12 requests at the objective.
double first_request(const Options& options) {
  NodeControl control(options, 12);
  control.control({{kFirst, {}}, {kSecond, {}}});
  control.step({{kFirst, {0.5, 0.5}}, {kSecond, {0.5, 0.5}}}, Time{});
  return control.cores().at(kFirst).requested - 6;
}

TEST(NodeControl, ALongWindowMakesTheGainsSmaller) {
  EXPECT_NEAR(first_request({.window = std::chrono::seconds(10)}),
              6 * choose_gains(plant_of_queue(1), 0.5, 10).value().gain_cores_per_s * 0.1, 1e-9);
  EXPECT_LT(first_request({.window = std::chrono::seconds(10)}), 0.5 * first_request({}));
  EXPECT_GT(first_request({.window = std::chrono::seconds(10)}), 0);
}

TEST(NodeControl, GivenGainsReplaceThoseOfThePlant) {
  EXPECT_NEAR(first_request({.gains = PiGains{0.15, 0.11}}), 0.15 * (0.5 - 0.8 * 0.5), 1e-12);
}

TEST(NodeControl, StepsFollowTheMeanOfTheirPeriod) {
  NodeControl control({.cores = CoreRule::steps}, 8);
  control.control({{kFirst, {}}, {kSecond, {}}});
  EXPECT_EQ(control.cores().at(kFirst).granted, 4);
  const auto second = [](int at) { return Time(std::chrono::seconds(at)); };
  for (int at = 1; at < 15; ++at) {
    control.step({{kFirst, {0.4, 0.5}}, {kSecond, {0.05, 0.5}}}, second(at));
    EXPECT_EQ(control.cores().at(kFirst).granted, 4);
  }
  control.step({{kFirst, {0.4, 0.5}}, {kSecond, {0.05, 0.5}}}, second(15));
  EXPECT_EQ(control.cores().at(kFirst), (Cores{5, 5}));
  EXPECT_EQ(control.cores().at(kSecond), (Cores{3, 3}));
  for (int at = 16; at <= 30; ++at) {
    control.step({{kFirst, {0.3, 0.5}}, {kSecond, {0, 0.5}}}, second(at));
  }
  EXPECT_EQ(control.cores().at(kFirst).granted, 5) << "between the thresholds";
  EXPECT_EQ(control.cores().at(kSecond).granted, 2) << "no requests";
}

TEST(NodeControl, FixedRulesGrantEqualParts) {
  const std::vector<Instance> two{{kFirst, {}}, {kSecond, {}}};
  const std::map<GpuletId, Reading> late{{kFirst, {9, 0.5}}, {kSecond, {0, 0.5}}};
  NodeControl all({.cores = CoreRule::all}, 6);
  all.control(two);
  all.step(late, Time{});
  EXPECT_EQ(all.cores().at(kFirst), (Cores{3, 3}));
  EXPECT_EQ(all.cores().at(kSecond), (Cores{3, 3}));
  NodeControl least({.cores = CoreRule::least}, 6);
  least.control(two);
  least.step(late, Time{});
  EXPECT_EQ(least.cores().at(kFirst), (Cores{0.5, 0.5}));
}

RC_GTEST_PROP(NodeControl, GrantsAtMostTheAvailableCoresAndRequestsAtLeastTheMinimum,
              (std::uint64_t seed)) {
  Random random(seed);
  Options options;
  options.cores = static_cast<CoreRule>(random.below(4));
  options.surplus = random.below(2) == 0 ? 0 : random.uniform();
  options.gpu_cores = random.below(2) == 0 ? 0 : random.uniform();
  const double node_cores = 1.5 + 10 * random.uniform();
  NodeControl control(options, node_cores);
  std::vector<Instance> instances(1 + random.below(12));
  for (std::size_t at = 0; at < instances.size(); ++at) {
    instances[at].id = GpuletId{at};
    if (random.below(2) == 0) instances[at].plant = Plant{random.uniform(), random.uniform(), 1};
  }
  control.control(instances);
  for (int period = 1; period < 40; ++period) {
    std::map<GpuletId, Reading> readings;
    for (const Instance& instance : instances) {
      if (random.below(10) == 0) continue;
      readings[instance.id] = {2 * random.uniform(), 0.5, random.below(10) != 0};
    }
    control.step(readings, Time(std::chrono::seconds(period)));
    double granted = 0;
    for (const auto& [id, cores] : control.cores()) {
      const auto reading = readings.find(id);
      const bool alive = reading != readings.end() && reading->second.alive;
      RC_ASSERT((alive ? cores.requested >= options.least_cores - 1e-9 : cores == Cores{}));
      RC_ASSERT(cores.requested <= node_cores + 1e-9);
      granted += cores.granted;
    }
    RC_ASSERT(granted <= node_cores - options.gpu_cores + 1e-9);
  }
}

}  // namespace
}  // namespace gpulet::control
