#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/base/random.h"
#include "gpulet/schedule/mig.h"
#include "tests/support/mig/workloads.h"

namespace gpulet::schedule::mig {
namespace {

using partition::MigGeometry;
using partition::MigInstance;

// A small random task: rates that grow faster or slower than the profile, and some services that
// are too large for the smallest profiles.
DeploymentTask small_task(std::uint64_t seed, std::uint64_t most_services, double most_devices) {
  Random random(seed);
  const std::vector<std::string_view> names = MigGeometry::names();
  MigGeometry geometry = MigGeometry::of(names[random.below(names.size())]).value();
  if (random.below(4) == 0) geometry = geometry.without_3g_beside_4g();
  DeploymentTask task{geometry, {}};
  const std::uint64_t services = 1 + random.below(most_services);
  for (std::uint64_t index = 0; index < services; ++index) {
    Service& service = task.services.emplace_back();
    service.name = "s" + std::to_string(index);
    const double of_slice = 10 + 90 * random.uniform();
    const double power = 0.5 + random.uniform();
    const std::uint64_t too_small =
        random.below(3) == 0 ? random.below(geometry.profiles().size()) : 0;
    for (const partition::MigProfile& profile : geometry.profiles()) {
      const bool fits = service.rate_on.size() >= too_small;
      service.rate_on.push_back(fits ? of_slice * std::pow(profile.slices, power) : 0);
    }
    service.need = service.rate_on.back() * most_devices * (0.02 + random.uniform());
  }
  return task;
}

TwoPhaseOptions quick(std::uint64_t seed = 1) {
  TwoPhaseOptions options;
  options.seed = seed;
  options.most_rounds = 1;
  return options;
}

ForEach on_two_threads() {
  return [](std::size_t count, const std::function<void(std::size_t)>& body) {
    const std::jthread odd([&] {
      for (std::size_t at = 1; at < count; at += 2) body(at);
    });
    for (std::size_t at = 0; at < count; at += 2) body(at);
  };
}

std::string text(const std::vector<std::string>& lines) {
  std::string joined;
  for (const std::string& line : lines) joined += line + "\n";
  return joined;
}

RC_GTEST_PROP(OptimiserTest, EveryAlgorithmsDeploymentIsValidAndNoneIsBelowTheBound,
              (std::uint64_t seed)) {
  const DeploymentTask task = small_task(seed, 8, 4);
  const double bound = lower_bound(task);
  RC_ASSERT(bound > 0);
  const double whole_instances = lower_bound_of_whole_instances(task);
  RC_ASSERT(lower_bound_without_rules(task) <= bound * (1 + 1e-9));
  RC_ASSERT(bound <= whole_instances);
  std::size_t greedy_devices = 0;
  const std::map<std::string, Deployment> deployments{{"greedy", greedy(task)},
                                                      {"two_phase", two_phase(task, quick())}};
  greedy_devices = deployments.at("greedy").devices.size();
  for (const auto& [name, deployment] : deployments) {
    const std::string wrong = text(faults(deployment, task));
    if (!wrong.empty()) RC_FAIL(name + ": " + wrong);
    if (static_cast<double>(deployment.devices.size()) < whole_instances - 1e-6)
      RC_FAIL(name + " is below the bound");
  }
  RC_ASSERT(deployments.at("two_phase").devices.size() <= greedy_devices);
}

// The layouts that NVIDIA lists for A100, H100 and H200.
const std::vector<std::vector<std::string>> kListed{
    {"7g@0"},
    {"4g@0", "3g@4"},
    {"4g@0", "2g@4", "1g@6"},
    {"4g@0", "1g@4", "1g@5", "1g@6"},
    {"3g@0", "3g@4"},
    {"3g@0", "2g@4", "1g@6"},
    {"3g@0", "1g@4", "1g@5", "1g@6"},
    {"2g@0", "2g@2", "3g@4"},
    {"2g@0", "2g@2", "2g@4", "1g@6"},
    {"2g@0", "2g@2", "1g@4", "1g@5", "1g@6"},
    {"2g@0", "1g@2", "1g@3", "3g@4"},
    {"2g@0", "1g@2", "1g@3", "2g@4", "1g@6"},
    {"2g@0", "1g@2", "1g@3", "1g@4", "1g@5", "1g@6"},
    {"1g@0", "1g@1", "2g@2", "3g@4"},
    {"1g@0", "1g@1", "2g@2", "2g@4", "1g@6"},
    {"1g@0", "1g@1", "2g@2", "1g@4", "1g@5", "1g@6"},
    {"1g@0", "1g@1", "1g@2", "1g@3", "3g@4"},
    {"1g@0", "1g@1", "1g@2", "1g@3", "2g@4", "1g@6"},
    {"1g@0", "1g@1", "1g@2", "1g@3", "1g@4", "1g@5", "1g@6"}};

bool is_listed(const DeviceConfiguration& device) {
  std::set<std::string> instances;
  for (const PlacedService& placed : device) instances.insert(to_string(placed.instance));
  return instances.size() == device.size() &&
         std::any_of(kListed.begin(), kListed.end(), [&](const std::vector<std::string>& layout) {
           const std::set<std::string> all(layout.begin(), layout.end());
           return std::includes(all.begin(), all.end(), instances.begin(), instances.end());
         });
}

class GeneratedWorkloads : public ::testing::Test {
 protected:
  static DeploymentTask task(std::size_t workload, std::uint32_t processes = 1) {
    const std::vector<testing::Model> models = testing::generated_models(1);
    return testing::task_of(testing::generated_workloads(1, models.size())[workload], models,
                            MigGeometry::of("a100-40").value(), processes);
  }
};

TEST_F(GeneratedWorkloads, TwoPhaseIsWithinThreePercentOfTheBoundOnDevicesThatAreListed) {
  for (std::size_t workload = 0; workload < 4; ++workload) {
    const DeploymentTask given = task(workload);
    TwoPhaseOptions options = quick();
    options.most_rounds = 1;
    const Deployment deployment = two_phase(given, options);
    EXPECT_EQ(text(faults(deployment, given)), "");
    for (const DeviceConfiguration& device : deployment.devices) EXPECT_TRUE(is_listed(device));
    const auto devices = static_cast<double>(deployment.devices.size());
    EXPECT_LE(devices, lower_bound(given) * 1.03) << workload;
  }
}

TEST_F(GeneratedWorkloads, ProcessesThatShareAnInstanceSaveDevices) {
  for (std::size_t workload = 0; workload < 4; ++workload) {
    const double one = lower_bound(task(workload));
    const double two = lower_bound(task(workload, 2));
    EXPECT_LT(two, one);
    EXPECT_LE(lower_bound(task(workload, 4)), two);
  }
}

TEST_F(GeneratedWorkloads, GrowthClassesHaveTheirSharesAtBatch8) {
  const std::vector<testing::Model> models = testing::generated_models(3);
  std::map<testing::Growth, int> at_8, at_1;
  for (const testing::Model& model : models) {
    ++at_1[growth(model, 1)];
    ++at_8[growth(model, 8)];
  }
  EXPECT_EQ(at_8[testing::Growth::sub_linear], 12);
  EXPECT_EQ(at_8[testing::Growth::linear], 6);
  EXPECT_EQ(at_8[testing::Growth::super_linear], 6);
  EXPECT_GT(at_1[testing::Growth::sub_linear], 12);
}

TEST_F(GeneratedWorkloads, AsManyModelsAreSubLinearAsAsked) {
  for (const int sub_linear : {0, 3, 12, 18, 24}) {
    std::map<testing::Growth, int> kinds;
    for (const testing::Model& model : testing::generated_models(1, 24, sub_linear / 24.0))
      ++kinds[growth(model, 8)];
    EXPECT_EQ(kinds[testing::Growth::sub_linear], sub_linear);
    EXPECT_LE(std::abs(kinds[testing::Growth::linear] - kinds[testing::Growth::super_linear]), 1);
  }
}

TEST_F(GeneratedWorkloads, AModelIsTheSameForAllPartsAtWhichItIsSubLinear) {
  const std::vector<testing::Model> half = testing::generated_models(1, 24, 0.5);
  const std::vector<testing::Model> all = testing::generated_models(1, 24, 1);
  for (std::size_t model = 0; model < half.size(); ++model) {
    if (growth(half[model], 8) != testing::Growth::sub_linear) continue;
    EXPECT_EQ(half[model].fixed_ms, all[model].fixed_ms);
    EXPECT_EQ(half[model].compute_ms, all[model].compute_ms);
  }
}

// 10 ms and 7 ms for each request on one slice, 1 ms on seven.
TEST_F(GeneratedWorkloads, TheRateIsThatOfTheLargestBatchWithinTheLimit) {
  testing::Model model;
  model.fixed_ms = 10;
  model.compute_ms = 7;
  const auto geometry = MigGeometry::of("a100-40").value();
  const partition::MigProfile& whole = *geometry.find(7);
  EXPECT_NEAR(testing::rate_on(model, whole, 1, {100, 32}), 32 / 0.042, 1e-9);
  EXPECT_NEAR(testing::rate_on(model, whole, 1, {100, 8}), 8 / 0.018, 1e-9);
  EXPECT_NEAR(testing::rate_on(model, whole, 1, {26, 32}), 16 / 0.026, 1e-9);
  EXPECT_EQ(testing::rate_on(model, whole, 1, {10, 32}), 0);
}

// The first small task whose bound is not reached in a few rounds.
DeploymentTask task_off_its_bound() {
  TwoPhaseOptions few;
  few.most_rounds = 4;
  for (std::uint64_t seed = 1;; ++seed) {
    const DeploymentTask task = small_task(seed, 4, 2);
    const auto devices = static_cast<double>(two_phase(task, few).devices.size());
    if (devices > std::ceil(lower_bound_of_whole_instances(task))) return task;
  }
}

TEST(OptimiserTest, OneSeedIsOneDeploymentOnAnyNumberOfThreads) {
  const DeploymentTask task = task_off_its_bound();
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    TwoPhaseOptions options = quick(seed);
    const Deployment alone = two_phase(task, options);
    EXPECT_EQ(alone, two_phase(task, options));
    options.for_each = on_two_threads();
    EXPECT_EQ(alone, two_phase(task, options));
  }
}

TEST(OptimiserTest, StopsAfterRoundsWithoutGain) {
  TwoPhaseOptions options;
  options.rounds_without_gain = 2;
  std::vector<Progress> seen;
  options.go_on = [&](const Progress& progress) {
    seen.push_back(progress);
    return true;
  };
  const DeploymentTask task = task_off_its_bound();
  const Deployment deployment = two_phase(task, options);
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.front().devices, greedy(task).devices.size());
  EXPECT_EQ(seen.back().devices, deployment.devices.size());
  std::uint32_t last_gain = 0;
  for (std::size_t at = 0; at < seen.size(); ++at) {
    EXPECT_EQ(seen[at].round, at);
    EXPECT_EQ(seen[at].lower_bound, lower_bound(task));
    if (at > 0 && seen[at].devices < seen[at - 1].devices) last_gain = seen[at].round;
  }
  EXPECT_EQ(seen.back().round, last_gain + 2);
}

TEST(OptimiserTest, StopsWhenTheCallbackReturnsFalse) {
  TwoPhaseOptions options;
  std::uint32_t asked = 0;
  options.go_on = [&](const Progress& progress) {
    EXPECT_EQ(progress.round, asked++);
    return progress.round < 2;
  };
  const DeploymentTask task = task_off_its_bound();
  EXPECT_EQ(text(faults(two_phase(task, options), task)), "");
  EXPECT_EQ(asked, 3U);
}

TEST(OptimiserTest, StopsAtTheLowerBound) {
  const MigGeometry a100 = MigGeometry::of("a100-40").value();
  const DeploymentTask task{a100, {{"a", 14, {1, 2, 3, 4, 7}}}};
  TwoPhaseOptions options;
  std::uint32_t asked = 0;
  options.go_on = [&](const Progress& progress) {
    EXPECT_EQ(progress.devices, 2U);
    ++asked;
    return true;
  };
  EXPECT_EQ(two_phase(task, options).devices.size(), 2U);
  EXPECT_EQ(asked, 1U) << "two whole devices reach the bound";
}

// An exhaustive search for the fewest devices, for up to three services and devices.
class Exhaustive {
 public:
  explicit Exhaustive(const DeploymentTask& task)
      : task_(task), layouts_(task.geometry.maximal_layouts()) {}

  std::size_t fewest(std::size_t at_most) {
    for (std::size_t devices = 0; devices <= at_most; ++devices) {
      std::vector<double> rest;
      for (const Service& service : task_.services) rest.push_back(service.need);
      if (can(rest, devices)) return devices;
    }
    return at_most + 1;
  }

 private:
  bool can(const std::vector<double>& rest, std::size_t devices) {
    if (std::all_of(rest.begin(), rest.end(), [](double lacking) { return lacking <= 1e-9; }))
      return true;
    if (devices == 0) return false;
    return std::any_of(layouts_.begin(), layouts_.end(), [&](const partition::MigLayout& layout) {
      return can_with(layout, 0, rest, devices);
    });
  }

  bool can_with(const partition::MigLayout& layout, std::size_t at, const std::vector<double>& rest,
                std::size_t devices) {
    if (at == layout.size()) return can(rest, devices - 1);
    for (std::uint32_t service = 0; service < rest.size(); ++service) {
      const double rate = rate_of({layout[at], service}, task_);
      if (rate <= 0 || rest[service] <= 1e-9) continue;
      std::vector<double> left = rest;
      left[service] -= rate;
      if (can_with(layout, at + 1, left, devices)) return true;
    }
    return can_with(layout, layout.size(), rest, devices);
  }

  const DeploymentTask& task_;
  std::vector<partition::MigLayout> layouts_;
};

TEST(OptimiserTest, TheFewestDevicesOfSmallTasksAreMostlyFoundAndNeverBelowTheBound) {
  int tried = 0, found = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const DeploymentTask task = small_task(1000 + seed, 3, 0.8);
    const std::size_t devices = two_phase(task, quick()).devices.size();
    const double bound = lower_bound_of_whole_instances(task);
    if (devices > 2) continue;  // too many for the exhaustive search
    ++tried;
    const std::size_t fewest = Exhaustive(task).fewest(devices);
    EXPECT_LE(fewest, devices) << seed;
    EXPECT_GE(static_cast<double>(fewest), bound - 1e-6) << seed;
    found += devices == fewest ? 1 : 0;
  }
  EXPECT_GE(tried, 20);
  EXPECT_GE(found, tried - 2);
}

TEST(OptimiserTest, BoundsOfTasksWithKnownOptima) {
  const MigGeometry a100 = MigGeometry::of("a100-40").value();
  // Only 3g serves it: two on a device, although the slices suffice for 7/3.
  const DeploymentTask halves{a100, {{"a", 10, {0, 0, 1, 0, 0}}}};
  EXPECT_NEAR(lower_bound_without_rules(halves), 30.0 / 7, 1e-9);
  EXPECT_NEAR(lower_bound(halves), 5, 1e-6);
  // The same with a second service that needs 4g.
  const DeploymentTask both{a100, {{"a", 10, {0, 0, 1, 0, 0}}, {"b", 10, {0, 0, 0, 1, 0}}}};
  EXPECT_NEAR(lower_bound(both), 10, 1e-6);
  const DeploymentTask strict{a100.without_3g_beside_4g(), both.services};
  EXPECT_NEAR(lower_bound(strict), 15, 1e-6);
  EXPECT_EQ(two_phase(strict, {}).devices.size(), 15U);
}

TEST(OptimiserTest, ServicesThatNoProfileServesAreLeftOut) {
  const MigGeometry a100 = MigGeometry::of("a100-40").value();
  const DeploymentTask nothing{a100, {{"a", 5, {0, 0, 0, 0, 0}}}};
  EXPECT_EQ(lower_bound(nothing), 0);
  for (const Deployment& deployment : {greedy(nothing), two_phase(nothing, {})})
    EXPECT_TRUE(deployment.devices.empty());
  EXPECT_TRUE(greedy({a100, {}}).devices.empty());
}

TEST(OptimiserTest, FaultsAreFound) {
  using Devices = std::vector<DeviceConfiguration>;
  const DeploymentTask task{MigGeometry::of("a100-40").value(), {{"a", 10, {0, 2, 3, 4, 7}}}};
  const auto faults_of = [&](const Devices& devices) {
    Deployment deployment;
    deployment.devices = devices;
    return faults(deployment, task).size();
  };
  const DeviceConfiguration whole{{{7, 0}, 0}}, half{{{3, 0}, 0}}, too_small{{{1, 0}, 0}};
  const DeviceConfiguration overlapping{{{3, 0}, 0}, {{4, 0}, 0}};
  EXPECT_EQ(faults_of(Devices{whole, half}), 0U);
  EXPECT_EQ(faults_of(Devices{whole}), 1U) << "an unmet need";
  EXPECT_EQ(faults_of(Devices{whole, half, DeviceConfiguration{}}), 1U) << "an empty device";
  EXPECT_EQ(faults_of(Devices{whole, half, too_small}), 1U);
  EXPECT_EQ(faults_of(Devices{whole, overlapping}), 1U);
  // Rates cannot be added up where a service is unknown, so this fault is the only one.
  const DeviceConfiguration unknown{{{3, 1}, 1}};
  EXPECT_EQ(faults_of(Devices{unknown}), 1U);
}

}  // namespace
}  // namespace gpulet::schedule::mig
