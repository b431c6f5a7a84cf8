#include "schedule/plan_builder.h"

#include <gtest/gtest.h>

#include "tests/schedule/worked.h"

namespace gpulet::schedule::plan_builder_test {
namespace {

using testing::Worked;

// Indices of the sizes.
constexpr std::uint32_t k20 = 0;
constexpr std::uint32_t k100 = 5;

// 50 requests of one model a second.
Worked two_devices_for(double slo_ms) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1, 32, 600}});
  testing::add_devices(worked, "n0", "gpu", 2);
  worked.input.demands = {{"a", 50, slo_ms, 32}};
  return worked;
}

FilledDevice filled(std::uint32_t size, double rate) {
  FilledGpulet gpulet;
  gpulet.size = size;
  gpulet.portions.push_back({0, rate});
  FilledDevice device;
  device.gpulets.push_back(gpulet);
  return device;
}

std::size_t devices_used(const Worked& worked, const std::vector<FilledDevice>& devices) {
  PlanContext context(worked.input);
  return build_from(context, devices).devices_used();
}

TEST(BuildFrom, OpensADeviceOnlyForAGpuletThatItCanHave) {
  const Worked worked = two_devices_for(200);
  EXPECT_EQ(devices_used(worked, {filled(k20, 25), filled(k20, 25)}), 2U);
  EXPECT_EQ(devices_used(worked, {filled(k20, 50), filled(k20, 50)}), 1U)
      << "the first serves everything";
  EXPECT_EQ(devices_used(worked, {filled(k20, 0)}), 0U) << "no rate";
  Worked small = two_devices_for(200);
  for (Device& device : small.input.cluster.devices) device.memory_mb = 599;
  EXPECT_EQ(devices_used(small, {filled(k20, 50)}), 0U) << "too little memory";
}

// A single request takes 10 ms at 20 %, and may take half of the SLO.
TEST(BuildFrom, OpensNoDeviceForASizeThatIsTooSlow) {
  const Worked worked = two_devices_for(15);
  EXPECT_EQ(devices_used(worked, {filled(k20, 50)}), 0U);
  EXPECT_EQ(devices_used(worked, {filled(k100, 50)}), 1U);
}

TEST(BuildFrom, GivesTheRestOfARateToGpuletsWithSpareCapacity) {
  const Worked worked = two_devices_for(200);
  PlanContext context(worked.input);
  const PlanBuilder builder = build_from(context, {filled(k100, 10)});
  EXPECT_EQ(builder.unplaced(0), 0);
  ASSERT_EQ(builder.gpulets().size(), 1U);
  EXPECT_DOUBLE_EQ(builder.gpulets()[0].slots.at(0).rate, 50);
}

}  // namespace
}  // namespace gpulet::schedule::plan_builder_test
