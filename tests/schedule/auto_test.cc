// The policy auto: what it shares with cover and elastic, and what it makes of all kinds of
// devices.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/profile/store.h"
#include "gpulet/schedule/check.h"
#include "gpulet/schedule/scaling.h"
#include "tests/schedule/generated.h"
#include "tests/schedule/reference_case.h"

namespace gpulet::schedule {
namespace {

using testing::any_input;
using testing::policy;
using testing::violations;
using testing::Worked;

Plan plan_within(Worked& worked, double budget_ms) {
  worked.input.options.budget_ms = budget_ms;
  return policy("auto")->plan(worked.input);
}

RC_GTEST_PROP(Auto, ServesWhatElasticServesWithinAnyBudget, ()) {
  Worked worked = any_input();
  const Plan elastic = policy("elastic")->plan(worked.input);
  for (const double budget_ms : {0.0, 0.1, 3.0, 200.0}) {
    const Plan plan = plan_within(worked, budget_ms);
    RC_LOG() << violations(plan, worked.input);
    RC_ASSERT(check(plan, worked.input).empty());
    if (!elastic.schedulable()) continue;
    RC_ASSERT(plan.schedulable());
    RC_ASSERT(plan.devices_used() <= elastic.devices_used());
  }
}

// Where the devices are too few, a plan that serves more may follow.
RC_GTEST_PROP(Auto, RepeatsThePlanInForceWithinAnyBudget, ()) {
  Worked worked = any_input();
  for (const double budget_ms : {0.0, 0.1, 3.0}) {
    worked.input.current = nullptr;
    const Plan plan = plan_within(worked, budget_ms);
    worked.input.current = &plan;
    const Plan again = plan_within(worked, budget_ms);
    RC_LOG() << testing::differences(plan, again);
    RC_ASSERT(again == plan || again.unserved_rate() < plan.unserved_rate());
  }
}

bool is_on_cpu(const PlannedGpulet& gpulet, const PlanInput& input) {
  return std::any_of(
      input.cluster.devices.begin(), input.cluster.devices.end(),
      [&gpulet](const Device& device) { return device.key == gpulet.device && is_cpu(device); });
}

bool uses_cpus(const Plan& plan, const PlanInput& input) {
  return std::any_of(plan.gpulets.begin(), plan.gpulets.end(),
                     [&input](const PlannedGpulet& gpulet) { return is_on_cpu(gpulet, input); });
}

RC_GTEST_PROP(AllKindsOfDevices, KeepTheRulesAndThePlanInForce, ()) {
  Worked worked = testing::any_mixed_input();
  for (const std::string_view name : {"auto", "cover", "elastic"}) {
    worked.input.current = nullptr;
    const Plan plan = policy(name)->plan(worked.input);
    RC_LOG() << name << "\n" << violations(plan, worked.input);
    RC_ASSERT(check(plan, worked.input).empty());
    worked.input.current = &plan;
    const Plan again = policy(name)->plan(worked.input);
    RC_LOG() << testing::differences(plan, again);
    // Where the devices are too few, a plan that serves more may follow.
    RC_ASSERT(again == plan || again.unserved_rate() < plan.unserved_rate());
  }
}

RC_GTEST_PROP(AllKindsOfDevices, StayCorrectWithAnyPlanInForce, ()) {
  Worked worked = testing::any_mixed_input();
  const Plan before = plan_within(worked, 3);
  worked.input.current = &before;
  const auto scale = *rc::gen::inRange(0, 300);
  for (ModelDemand& demand : worked.input.demands) demand.rate *= scale / 100.0;
  const Plan after = plan_within(worked, 3);
  RC_LOG() << violations(after, worked.input);
  RC_ASSERT(check(after, worked.input).empty());
}

RC_GTEST_PROP(AllKindsOfDevices, LeaveCpusIdleWhereTheOthersServeTheDemand, ()) {
  Worked worked = testing::any_mixed_input();
  for (ModelDemand& demand : worked.input.demands) demand.rate /= 100;
  PlanInput others = worked.input;
  others.cluster = without_cpus(worked.input.cluster);
  for (const std::string_view name : {"auto", "cover"}) {
    if (others.cluster.devices.empty() || !policy(name)->plan(others).schedulable()) continue;
    const Plan plan = policy(name)->plan(worked.input);
    RC_ASSERT(plan.schedulable());
    RC_ASSERT(!uses_cpus(plan, worked.input));
  }
}

// A GPU serves 1,778 requests per second in batches of 32, a CPU a tenth of that.
TEST(AllKindsOfDevices, UseAsFewCoresAsTheRestNeeds) {
  for (const std::string_view name : {"auto", "cover"}) {
    Worked worked;
    testing::add_profile(worked, "gpu", {{"net", 2, 0.5}});
    testing::add_profile(worked, "cpu", {{"net", 20, 5}});
    testing::add_devices(worked, "n0", "gpu", 1);
    testing::add_devices(worked, "n1", "cpu", 4);
    for (Device& device : worked.input.cluster.devices) {
      if (device.key.node == "n1") device.cores = 8;
    }
    worked.input.demands = {{"net", 1700, 800, 32}};
    EXPECT_FALSE(uses_cpus(policy(name)->plan(worked.input), worked.input)) << name;

    worked.input.demands[0].rate = 1778 + 90;
    const Plan plan = policy(name)->plan(worked.input);
    EXPECT_TRUE(plan.schedulable()) << name;
    EXPECT_EQ(violations(plan, worked.input), "") << name;
    int percent = 0;
    for (const PlannedGpulet& gpulet : plan.gpulets)
      percent += is_on_cpu(gpulet, worked.input) ? gpulet.size.percent : 0;
    // 90 of 178 requests per second are 51 %. Each of two gpulets has a size of the list.
    EXPECT_GE(percent, 51) << name;
    EXPECT_LE(percent, 70) << name;

    // Too much for all devices.
    worked.input.demands[0].rate = 5000;
    const Plan overloaded = policy(name)->plan(worked.input);
    EXPECT_EQ(violations(overloaded, worked.input), "") << name;
    EXPECT_GT(testing::served(overloaded, "net"), 1778 + 4 * 150) << name;
  }
}

// Two devices by share, and two by MIG; a model fills a device with 1,778 requests per second.
Worked two_kinds(double rate) {
  Worked worked;
  std::vector<profile::LatencySample> samples;
  for (const int percent : {14, 20, 28, 40, 42, 50, 57, 60, 80, 100}) {
    for (const std::uint32_t batch : {1U, 32U})
      samples.push_back({batch, Share{percent}, (2 + 0.5 * batch) * 100 / percent});
  }
  profile::Profile& gpu = (*worked.profiles)["gpu"];
  gpu.name = "gpu";
  gpu.models.emplace("net",
                     profile::ModelProfile{profile::LatencyTable::create(samples).value(), {}, {}});
  testing::add_devices(worked, "n0", "gpu", 4);
  for (const std::size_t divided : {0U, 1U})
    testing::divide_by_mig(worked.input.cluster.devices[divided], "a100-80");
  worked.input.demands = {{"net", rate, 400, 32}};
  return worked;
}

std::size_t gpulets_in_instances(const Plan& plan) {
  return static_cast<std::size_t>(
      std::count_if(plan.gpulets.begin(), plan.gpulets.end(),
                    [](const PlannedGpulet& gpulet) { return gpulet.instance.has_value(); }));
}

TEST(Auto, UsesDevicesOfAllKindsWithinAnyBudget) {
  for (const double budget_ms : {0.0, 200.0}) {
    Worked worked = two_kinds(3 * 1700);
    Plan plan = plan_within(worked, budget_ms);
    EXPECT_TRUE(plan.schedulable()) << budget_ms;
    EXPECT_EQ(violations(plan, worked.input), "");
    EXPECT_GT(gpulets_in_instances(plan), 0U);

    std::erase_if(worked.input.cluster.devices, [](const Device& device) { return !device.mig; });
    worked.input.demands[0].rate = 1700;
    plan = plan_within(worked, budget_ms);
    EXPECT_TRUE(plan.schedulable()) << budget_ms;
    EXPECT_EQ(violations(plan, worked.input), "");
  }
}

// The first scenario of profiles/reference-a100-mig. Its authors' system needs two devices.
TEST(Auto, ServesMeasuredModelsInInstances) {
  Worked worked;
  worked.profiles->emplace("reference-a100-mig",
                           profile::read_profile(std::filesystem::path(GPULET_SOURCE_DIR) /
                                                 "profiles/reference-a100-mig")
                               .value());
  testing::add_devices(worked, "n0", "reference-a100-mig", 4);
  testing::divide_by_mig(worked, "a100-80");
  worked.input.demands = {{"bert", 19, 6434, 128},          {"densenet121", 353, 183, 128},
                          {"inceptionv3", 460, 418.5, 128}, {"mobilenetv2", 677, 167, 128},
                          {"resnet50", 829, 204.5, 128},    {"vgg19", 354, 396.5, 128}};
  for (const double budget_ms : {0.0, 200.0}) {
    const Plan plan = plan_within(worked, budget_ms);
    EXPECT_TRUE(plan.schedulable()) << budget_ms;
    EXPECT_EQ(violations(plan, worked.input), "") << budget_ms;
  }
}

TEST(Auto, KeepsGpuletsInInstancesWhileTheyServeTheDemand) {
  Worked worked = two_kinds(3 * 1700);
  const Plan before = plan_within(worked, 200);
  worked.input.demands[0].rate *= 0.95;
  worked.input.current = &before;
  const Plan after = plan_within(worked, 200);
  EXPECT_TRUE(after.schedulable());
  EXPECT_EQ(violations(after, worked.input), "");
  EXPECT_EQ(testing::count_moves(before, after), (testing::Moves{before.gpulets.size(), 0, 0}));
}

// Continuing a plan uses its devices; the scaling loop asks for fewer.
TEST(Auto, GivesDevicesBackInTheScalingLoop) {
  Worked worked = two_kinds(3 * 1700);
  const Plan before = plan_within(worked, 200);
  worked.input.demands[0].rate = 800;
  worked.input.current = &before;
  EXPECT_EQ(scale(*policy("auto"), worked.input).devices, 1U);
}

TEST(Auto, FindsWithinItsBudgetWhatElasticDoesNot) {
  Worked worked;
  std::vector<testing::ModelLatency> models;
  for (int index = 0; index < 16; ++index) {
    models.push_back({"net" + std::to_string(index), 0.1, 0.5});
    worked.input.demands.push_back({models.back().name, 0.58 * 32 / 0.0161, 40, 32});
  }
  testing::add_profile(worked, "gpu", models);
  testing::add_devices(worked, "n0", "gpu", 16);
  for (Device& device : worked.input.cluster.devices) {
    device.sizes = {{100}};
    device.max_partitions = 1;
  }
  EXPECT_EQ(plan_within(worked, 0).gpulets, policy("elastic")->plan(worked.input).gpulets);
  const Plan plan = plan_within(worked, 200);
  EXPECT_EQ(plan.devices_used(), 10U);
  EXPECT_EQ(plan.lower_bound, 10U);
}

// 920 is what `ideal` schedules at scale 5.
TEST(Auto, IsMonotonicInTheLoadOfTheReferenceCase) {
  Worked worked = testing::reference_case();
  const auto planner = policy("auto");
  std::vector<bool> rows;
  for (int scenario = 1; scenario < testing::kScenarios; ++scenario) {
    testing::set_scenario(worked, scenario, 5);
    const Plan plan = planner->plan(worked.input);
    EXPECT_EQ(violations(plan, worked.input), "") << "scenario " << scenario;
    rows.push_back(plan.schedulable());
  }
  EXPECT_GE(std::count(rows.begin(), rows.end(), true), 920);
  EXPECT_EQ(testing::count_non_monotonic(rows), 0U);
}

}  // namespace
}  // namespace gpulet::schedule
