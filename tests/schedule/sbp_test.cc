#include <gtest/gtest.h>

#include "tests/schedule/worked.h"

namespace gpulet::schedule {
namespace {

using testing::policy;
using testing::Worked;

// 32 requests take 33 ms: with an SLO of 66 ms one device serves 969.7 of them a second.
Worked two_models(double rate_a, double rate_b, std::uint32_t devices) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}, {"b", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", devices);
  worked.input.demands = {{"a", rate_a, 66, 32}, {"b", rate_b, 66, 32}};
  return worked;
}

TEST(SquishyBinPacking, UsesDevicesWholeOnly) {
  const Plan plan = policy("sbp")->plan(two_models(300, 700, 4).input);
  for (const PlannedGpulet& gpulet : plan.gpulets) EXPECT_EQ(gpulet.size, kWholeDevice);
}

TEST(SquishyBinPacking, SaturatesDevicesBeforeItSharesThem) {
  const Plan plan = policy("sbp")->plan(two_models(2100, 300, 4).input);
  EXPECT_TRUE(plan.schedulable());
  ASSERT_EQ(plan.devices_used(), 3U);
  int saturated = 0;
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    if (gpulet.assignments.size() == 1) {
      ++saturated;
      EXPECT_NEAR(gpulet.assignments[0].rate, 32 / 0.033, 1e-6);
      EXPECT_EQ(gpulet.assignments[0].batch, 32U);
      EXPECT_NEAR(gpulet.duty_cycle_ms, 33, 1e-6);
    }
  }
  EXPECT_EQ(saturated, 2);
}

TEST(SquishyBinPacking, LetsRestsShareADevice) {
  const Plan plan = policy("sbp")->plan(two_models(300, 300, 4).input);
  EXPECT_TRUE(plan.schedulable());
  ASSERT_EQ(plan.gpulets.size(), 1U);
  EXPECT_EQ(plan.gpulets[0].assignments.size(), 2U);
}

TEST(SquishyBinPacking, ServesPartOfARestThatFitsNowhere) {
  Worked worked = two_models(900, 900, 1);
  const Plan plan = policy("sbp")->plan(worked.input);
  EXPECT_FALSE(plan.schedulable());
  EXPECT_EQ(testing::violations(plan, worked.input), "");
  EXPECT_GE(testing::served(plan, "a") + testing::served(plan, "b"), 900);
}

TEST(SquishyBinPacking, PrefersTheDeviceTypeOnWhichAModelIsFaster) {
  Worked worked;
  testing::add_profile(worked, "slow", {{"a", 1, 4}});
  testing::add_profile(worked, "fast", {{"a", 1, 1}});
  testing::add_devices(worked, "n0", "slow", 1);
  testing::add_devices(worked, "n1", "fast", 1);
  worked.input.demands = {{"a", 100, 66, 32}};
  const Plan plan = policy("sbp")->plan(worked.input);
  ASSERT_EQ(plan.gpulets.size(), 1U);
  EXPECT_EQ(plan.gpulets[0].device.node, "n1");
}

TEST(SplitSquishyBinPacking, UsesTwoEqualPartsOfADevice) {
  Worked worked = two_models(480, 480, 4);
  const Plan plan = policy("sbp-split")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  for (const PlannedGpulet& gpulet : plan.gpulets) EXPECT_EQ(gpulet.size.percent, 50);
}

TEST(SplitSquishyBinPacking, FillsBothHalvesBeforeItOpensAnotherDevice) {
  // A half serves 15 requests in 32 ms: 468.75 a second.
  const Plan plan = policy("sbp-split")->plan(two_models(468, 468, 4).input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(plan.gpulets.size(), 2U);
  EXPECT_EQ(plan.devices_used(), 1U);
}

TEST(SplitSquishyBinPacking, TakesTheNearestHalfThatIsListed) {
  Worked worked = two_models(300, 300, 2);
  for (Device& device : worked.input.cluster.devices) device.sizes = {{20}, {40}, {60}, {100}};
  for (const PlannedGpulet& gpulet : policy("sbp-split")->plan(worked.input).gpulets) {
    EXPECT_EQ(gpulet.size.percent, 40);
  }
}

TEST(SplitSquishyBinPacking, UsesADeviceWholeThatCannotBeSplit) {
  Worked worked = two_models(300, 300, 2);
  worked.input.cluster.devices[0].sizes = {{60}, {100}};
  worked.input.cluster.devices[1].max_partitions = 1;
  for (const PlannedGpulet& gpulet : policy("sbp-split")->plan(worked.input).gpulets) {
    EXPECT_EQ(gpulet.size, kWholeDevice);
  }
}

}  // namespace
}  // namespace gpulet::schedule
