// The policy roma, and the rules of check() for instances without rounds.
#include <gtest/gtest.h>

#include <string>

#include "gpulet/schedule/check.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/schedule/reconcile.h"
#include "tests/schedule/breaks.h"
#include "tests/schedule/worked.h"

namespace gpulet::schedule {
namespace {

using testing::Worked;

// Two nodes with a GPU and a CPU of six cores each.
Worked two_workers() {
  Worked worked;
  testing::add_profile(worked, "card", {{"a", 4, 6, 32, 100}, {"b", 10, 10, 32, 300}});
  testing::add_profile(worked, "processor", {{"a", 0, 40, 32, 100}, {"b", 0, 90, 32, 300}});
  for (const char* node : {"n0", "n1"}) {
    testing::add_devices(worked, node, "card", 1);
    testing::add_devices(worked, node, "processor", 1);
    worked.input.cluster.devices.back().cores = 6;
  }
  worked.input.demands = {{"b", 20, 500}, {"a", 10, 400}};
  return worked;
}

TEST(RomaTest, EveryGpuHoldsAllModelsAndEveryCpuOneInstanceOfEach) {
  const Worked worked = two_workers();
  const Plan plan = testing::policy("roma")->plan(worked.input);
  EXPECT_EQ(testing::violations(plan, worked.input), "");
  ASSERT_EQ(plan.gpulets.size(), 6U);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(plan.gpulets[0].service, Service::by_need);
  EXPECT_EQ(plan.gpulets[0].size, kWholeDevice);
  EXPECT_EQ(plan.gpulets[0].assignments.size(), 2U);
  EXPECT_DOUBLE_EQ(plan.gpulets[0].assignments[0].latency_ms, 10);
  EXPECT_EQ(plan.gpulets[1].service, Service::controlled);
  EXPECT_EQ(plan.gpulets[1].assignments[0].model, "a");
  EXPECT_EQ(plan.gpulets[2].assignments[0].model, "b");
}

TEST(RomaTest, ModelsWithoutDemandHaveNoInstances) {
  Worked worked = two_workers();
  worked.input.demands[0].rate = 0;
  const Plan plan = testing::policy("roma")->plan(worked.input);
  EXPECT_EQ(testing::violations(plan, worked.input), "");
  EXPECT_EQ(plan.gpulets.size(), 4U);
}

TEST(RomaTest, ModelsThatDoNotFitAGpuAreServedByCpus) {
  Worked worked = two_workers();
  for (Device& device : worked.input.cluster.devices) device.memory_mb = is_cpu(device) ? 0 : 200;
  const Plan plan = testing::policy("roma")->plan(worked.input);
  EXPECT_EQ(testing::violations(plan, worked.input), "");
  EXPECT_EQ(plan.gpulets[0].assignments.size(), 1U);
  EXPECT_TRUE(plan.schedulable());
}

TEST(RomaTest, AModelTooLargeForAGpuLeavesItToSmallerOnes) {
  Worked worked = two_workers();
  for (Device& device : worked.input.cluster.devices) device.memory_mb = is_cpu(device) ? 0 : 200;
  worked.profiles->at("card").models.clear();
  testing::add_profile(worked, "card", {{"a", 4, 6, 32, 300}, {"b", 10, 10, 32, 100}});
  const Plan plan = testing::policy("roma")->plan(worked.input);
  EXPECT_EQ(testing::violations(plan, worked.input), "");
  ASSERT_EQ(plan.gpulets[0].assignments.size(), 1U);
  EXPECT_EQ(plan.gpulets[0].assignments[0].model, "b");
}

TEST(RomaTest, ModelsWithoutMeasurementsAreUnserved) {
  Worked worked = two_workers();
  worked.input.demands.push_back({"new", 5, 100});
  const Plan plan = testing::policy("roma")->plan(worked.input);
  EXPECT_EQ(testing::violations(plan, worked.input), "");
  ASSERT_EQ(plan.unserved.size(), 1U);
  EXPECT_EQ(plan.unserved[0].model, "new");
}

TEST(RomaTest, AnotherModelDoesNotChangeTheInstancesOfOthers) {
  Worked worked = two_workers();
  worked.input.demands[0].rate = 0;
  const Plan before = testing::policy("roma")->plan(worked.input);
  std::vector<RunningGpulet> running;
  for (const PlannedGpulet& planned : before.gpulets) {
    running.push_back({GpuletId{running.size() + 1},
                       planned.device,
                       planned.size,
                       {{"a", 1}},
                       {},
                       planned.service == Service::controlled});
  }
  EXPECT_TRUE(reconcile(running, before).empty());
  worked.input.demands[0].rate = 20;
  const Plan after = testing::policy("roma")->plan(worked.input);
  const Steps steps = reconcile(running, after);
  EXPECT_EQ(steps.keep.size(), 2U);    // the CPUs' instances of a
  EXPECT_EQ(steps.create.size(), 4U);  // those of b, and the GPUs, which now hold both
}

TEST(RomaTest, AGpuletIsNeverKeptForAControlledInstance) {
  const Worked worked = two_workers();
  const Plan plan = testing::policy("roma")->plan(worked.input);
  const RunningGpulet rounds{GpuletId{1}, plan.gpulets[1].device, kControlledShare, {{"a", 1}}};
  EXPECT_EQ(reconcile({rounds}, plan).keep.size(), 0U);
}

TEST(RomaCheckTest, FindsFaultsOfInstances) {
  const Worked worked = two_workers();
  const Plan good = testing::policy("roma")->plan(worked.input);
  const auto breaks = [&](const Violation& violation, auto change) {
    Plan plan = good;
    change(plan);
    return testing::breaks(plan, worked.input, violation);
  };
  using Cause = ViolationCause;
  EXPECT_TRUE(breaks({.cause = Cause::service_rate, .found = 1},
                     [](Plan& plan) { plan.gpulets[1].assignments[0].rate = 1; }));
  EXPECT_TRUE(breaks({.cause = Cause::service_batch, .found = 2},
                     [](Plan& plan) { plan.gpulets[1].assignments[0].batch = 2; }));
  EXPECT_TRUE(breaks({.cause = Cause::service_size, .found = 50, .expected = 100},
                     [](Plan& plan) { plan.gpulets[0].size = Share{50}; }));
  EXPECT_TRUE(breaks({.cause = Cause::controlled_device},
                     [](Plan& plan) { plan.gpulets[0].service = Service::controlled; }));
  EXPECT_TRUE(breaks({.cause = Cause::two_instances, .model = "a"},
                     [](Plan& plan) { plan.gpulets.push_back(plan.gpulets[1]); }));
  const double twice_ms = 2 * good.gpulets[2].assignments[0].latency_ms;
  EXPECT_TRUE(breaks({.cause = Cause::service_latency, .found = twice_ms},
                     [&](Plan& plan) { plan.gpulets[2].assignments[0].latency_ms = twice_ms; }));
  EXPECT_TRUE(breaks({.cause = Cause::not_covered, .model = "a", .expected = 10}, [](Plan& plan) {
    std::erase_if(plan.gpulets, [](const PlannedGpulet& one) {
      return one.service == Service::by_need || one.assignments[0].model == "a";
    });
  }));
}

}  // namespace
}  // namespace gpulet::schedule
