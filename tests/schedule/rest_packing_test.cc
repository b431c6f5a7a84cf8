#include "schedule/cover/rest_packing.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpulet/schedule/check.h"
#include "schedule/plan_output.h"
#include "tests/schedule/generated.h"

namespace gpulet::schedule::rest_packing_test {
namespace {

using testing::any_input;
using testing::violations;
using testing::Worked;

// Batches of any size take 10 ms on a whole device, so a device serves 3,200 requests a second of
// one model.
Worked worked_with(int models, double rate, std::uint32_t devices) {
  Worked worked;
  std::vector<testing::ModelLatency> latencies;
  for (int index = 0; index < models; ++index) {
    latencies.push_back({"net" + std::to_string(index), 10, 0});
    worked.input.demands.push_back({latencies.back().name, rate, 45, 32});
  }
  testing::add_profile(worked, "gpu", latencies);
  testing::add_devices(worked, "n0", "gpu", devices);
  return worked;
}

void expect_devices(const Worked& worked, std::size_t devices) {
  PlanContext context(worked.input);
  ASSERT_TRUE(can_pack_rests(context));
  const Plan plan = finish(pack_rests(context));
  EXPECT_EQ(violations(plan, worked.input), "");
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(plan.devices_used(), devices);
}

// Three batches make a round of 30 ms, and one more of 10 ms is within the SLO. A fourth is not.
TEST(RestPacking, FindsThreeModelsForEachDevice) { expect_devices(worked_with(36, 100, 36), 12); }

TEST(RestPacking, FillsDevicesWithOneModelFirst) { expect_devices(worked_with(36, 3300, 72), 48); }

// Two of the four models share a device. Their rounds have room for 5 ms of the fifth, whose
// batches of 32 then serve 1,280 a second on each of two devices, and too few beside one of them.
TEST(RestPacking, GivesUpADeviceWhereOthersHaveRoomForPartsOfItsModel) {
  Worked worked = worked_with(4, 1200, 5);
  std::vector<testing::ModelLatency> latencies{{"quick", 5, 0}};
  for (const ModelDemand& demand : worked.input.demands) latencies.push_back({demand.name, 10, 0});
  worked.profiles->clear();
  testing::add_profile(worked, "gpu", latencies);
  worked.input.demands.push_back({"quick", 2400, 45, 32});
  expect_devices(worked, 2);
}

TEST(RestPacking, LeavesUnservedWhatDevicesLack) {
  const Worked worked = worked_with(9, 3300, 10);
  PlanContext context(worked.input);
  const Plan plan = finish(pack_rests(context));
  EXPECT_EQ(violations(plan, worked.input), "");
  EXPECT_FALSE(plan.schedulable());
  EXPECT_EQ(plan.devices_used(), 10U);
}

bool has_mig(const Device& device) { return device.mig.has_value(); }

// Keeps the devices without MIG. All become like the first, with a size for whole devices.
void make_devices_alike(Worked& worked) {
  std::vector<Device>& devices = worked.input.cluster.devices;
  std::erase_if(devices, has_mig);
  if (devices.empty()) return;
  Device like = devices.front();
  if (like.sizes.back() != kWholeDevice) like.sizes.push_back(kWholeDevice);
  for (Device& device : devices) {
    like.key = device.key;
    device = like;
  }
}

RC_GTEST_PROP(RestPacking, KeepsTheRules, ()) {
  Worked worked = any_input();
  make_devices_alike(worked);
  RC_PRE(!worked.input.cluster.devices.empty());
  PlanContext context(worked.input);
  RC_ASSERT(can_pack_rests(context));
  const Plan plan = finish(pack_rests(context));
  RC_LOG() << violations(plan, worked.input);
  RC_ASSERT(check(plan, worked.input).empty());
}

}  // namespace
}  // namespace gpulet::schedule::rest_packing_test
