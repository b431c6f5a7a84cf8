// Staying close to the plan in force, and what the configuration becomes.
#include <gtest/gtest.h>

#include "gpulet/schedule/from_config.h"
#include "tests/schedule/worked.h"

namespace gpulet::schedule {
namespace {

using testing::policy;
using testing::Worked;

// Three models that fill a device each.
Worked three_devices() {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", 4);
  worked.input.demands = {{"a", 900, 66, 32}, {"b", 900, 66, 32}, {"c", 900, 66, 32}};
  return worked;
}

DeviceKey device_of(const Plan& plan, const std::string& model) {
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    for (const Assignment& assignment : gpulet.assignments) {
      if (assignment.model == model) return gpulet.device;
    }
  }
  return {};
}

TEST(Placement, TakesDevicesByKeyWithoutAPlanInForce) {
  for (const std::string_view name : testing::share_policies()) {
    const Plan plan = policy(name)->plan(three_devices().input);
    ASSERT_EQ(plan.devices_used(), 3U) << name;
    EXPECT_EQ(plan.gpulets.back().device, (DeviceKey{"n0", 2})) << name;
  }
}

TEST(Placement, LeavesTheOthersWhereTheyAreWhenAModelGoes) {
  for (const std::string_view name : testing::share_policies()) {
    Worked worked = three_devices();
    const Plan before = policy(name)->plan(worked.input);
    if (before.gpulets.size() > 3) continue;  // sbp-split: no model has a device of its own
    worked.input.demands.erase(worked.input.demands.begin());
    worked.input.current = &before;
    const Plan after = policy(name)->plan(worked.input);
    EXPECT_EQ(device_of(after, "b"), device_of(before, "b")) << name;
    EXPECT_EQ(device_of(after, "c"), device_of(before, "c")) << name;
  }
}

TEST(Placement, StaysOnTheDevicesOfAPlanMadeElsewhere) {
  for (const std::string_view name : testing::share_policies()) {
    Worked worked = three_devices();
    Plan before = policy(name)->plan(worked.input);
    for (PlannedGpulet& gpulet : before.gpulets) ++gpulet.device.device;
    worked.input.current = &before;
    const Plan after = policy(name)->plan(worked.input);
    for (const char* model : {"a", "b", "c"})
      EXPECT_EQ(device_of(after, model), device_of(before, model)) << name;
  }
}

TEST(Placement, MovesWhatStoodOnADeviceThatLeft) {
  for (const std::string_view name : testing::share_policies()) {
    Worked worked = three_devices();
    const Plan before = policy(name)->plan(worked.input);
    if (before.gpulets.size() > 3) continue;  // sbp-split: no model has a device of its own
    worked.input.cluster.devices.erase(worked.input.cluster.devices.begin());
    worked.input.current = &before;
    const Plan after = policy(name)->plan(worked.input);
    EXPECT_EQ(testing::violations(after, worked.input), "") << name;
    int moved = 0;
    for (const char* model : {"a", "b", "c"})
      moved += device_of(after, model) != device_of(before, model);
    EXPECT_EQ(moved, 1) << name;
  }
}

TEST(FromConfig, NumbersDevicesWithinTheirNode) {
  config::DeviceConfig large;
  large.type = "large";
  large.count = 2;
  large.partitioning = "mps";
  large.sizes = {{50}, {100}};
  large.max_partitions = 3;
  large.memory_mb = 16000;
  large.cores = {0, 1, 2, 3, 4, 5};
  config::DeviceConfig small = large;
  small.type = "small";
  small.count = 1;
  small.geometry = partition::MigGeometry::of("a30").value();
  small.processes_per_instance = 2;
  small.core_count = 1.5;
  const Cluster cluster = cluster_from({{"n1", {large, small}}, {"n0", {small}}});
  ASSERT_EQ(cluster.devices.size(), 4U);
  EXPECT_EQ(cluster.devices[0].key, (DeviceKey{"n0", 0}));
  EXPECT_EQ(cluster.devices[0].type, "small");
  EXPECT_EQ(cluster.devices[0].mig, small.geometry);
  EXPECT_EQ(cluster.devices[0].processes_per_instance, 2U);
  EXPECT_EQ(cluster.devices[0].cores, 1.5);
  EXPECT_FALSE(cluster.devices[2].mig);
  EXPECT_EQ(cluster.devices[2].cores, 3);
  EXPECT_EQ(cluster.devices[2].key, (DeviceKey{"n1", 1}));
  EXPECT_EQ(cluster.devices[2].type, "large");
  EXPECT_EQ(cluster.devices[2].sizes, large.sizes);
  EXPECT_EQ(cluster.devices[2].max_partitions, 3U);
  EXPECT_EQ(cluster.devices[2].memory_mb, 16000);
  EXPECT_EQ(cluster.devices[3].key, (DeviceKey{"n1", 2}));
  EXPECT_EQ(cluster.devices[3].type, "small");
}

TEST(FromConfig, TakesDemandsAsTheyAre) {
  const std::vector<ModelDemand> demands = demands_from({{"net", 12.5, 40, 16}});
  ASSERT_EQ(demands.size(), 1U);
  EXPECT_EQ(demands[0], (ModelDemand{"net", 12.5, 40, 16}));
}

}  // namespace
}  // namespace gpulet::schedule
