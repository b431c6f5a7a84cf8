#include "node/node_devices.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "tests/backend/core_bench.h"

namespace gpulet::node::node_devices_test {
namespace {

const Status kFault(StatusCode::unavailable, "it fell off the bus");

class NodeDevicesTest : public ::testing::Test {
 protected:
  static BackendCoreOptions options() {
    BackendCoreOptions options;
    options.devices = {device(0, "cpu_quota"), device(1, "mig")};
    options.devices[0].device.cores = 4;
    options.devices[1].device.mig = partition::MigGeometry::of("a100-80").value();
    return options;
  }
  bool report(std::uint32_t of_device, Status fault, DevicePower power = {}) {
    DeviceHealthReported event{of_device, std::move(fault), power};
    return devices_.report(event);
  }

  const BackendCoreOptions options_ = options();
  NodeDevices devices_{options_};
};

TEST_F(NodeDevicesTest, TellsOfAFaultOnceWhenItComesAndWhenItGoes) {
  EXPECT_FALSE(report(0, {}));
  EXPECT_TRUE(report(0, kFault));
  EXPECT_FALSE(report(0, kFault));
  EXPECT_TRUE(devices_.is_faulty(0));
  EXPECT_FALSE(devices_.is_faulty(1));
  EXPECT_EQ(devices_.offers()[0].fault.code(), StatusCode::unavailable);
  EXPECT_TRUE(devices_.offers()[1].fault.ok());
  EXPECT_TRUE(report(0, {}));
  EXPECT_FALSE(devices_.is_faulty(0));
}

TEST_F(NodeDevicesTest, IgnoresDevicesThatDoNotExist) {
  EXPECT_FALSE(report(2, kFault, {.device = 2, .usage_w = 5.0}));
  EXPECT_FALSE(devices_.is_faulty(2));
  EXPECT_TRUE(devices_.heartbeat().power.empty());
}

TEST_F(NodeDevicesTest, AHeartbeatHasThePowerThatIsKnown) {
  static_cast<void>(report(0, {}));
  static_cast<void>(report(1, {}, {.device = 7, .usage_w = 20.0}));
  const Heartbeat beat = devices_.heartbeat();
  ASSERT_EQ(beat.power.size(), 1U);
  EXPECT_EQ(beat.power[0].device, 1U) << "the number of the event counts";
  EXPECT_EQ(beat.power[0].usage_w, 20.0);
}

TEST_F(NodeDevicesTest, RefusesGpuletsThatNoDeviceCanHold) {
  EXPECT_TRUE(devices_.check(create(1, {"a"}, 0)).ok());
  EXPECT_EQ(devices_.check(create(1, {"a"}, 2)).code(), StatusCode::invalid);
  EXPECT_EQ(devices_.check(create(1, {"a"}, 1)).code(), StatusCode::invalid) << "no instance";
  CreateGpulet with_instance = create(1, {"a"}, 0);
  with_instance.instance.emplace();
  EXPECT_EQ(devices_.check(with_instance).code(), StatusCode::invalid);
  static_cast<void>(report(0, kFault));
  EXPECT_EQ(devices_.check(create(1, {"a"}, 0)).code(), StatusCode::unavailable);
}

TEST_F(NodeDevicesTest, ControlsCoresOnlyWhereThereAreSome) {
  CreateGpulet controlled = create(1, {"a"}, 0);
  controlled.part.service = partition::Service::controlled;
  EXPECT_TRUE(devices_.check(controlled).ok());
  controlled.device = 1;
  controlled.instance.emplace();
  EXPECT_EQ(devices_.check(controlled).code(), StatusCode::invalid);
}

TEST_F(NodeDevicesTest, AGpuletHasTheCoresOfItsSizeUntilOthersAreRequested) {
  HostedGpulet gpulet = HostedGpulet::create(create(1, {"a"}, 0), Time()).value();
  EXPECT_DOUBLE_EQ(devices_.cores_of(gpulet), 0.4 * 4);
  gpulet.cores = 3;
  EXPECT_DOUBLE_EQ(devices_.cores_of(gpulet), 3);
}

TEST_F(NodeDevicesTest, OnlySimulatedDevicesHaveALatencyOfTheirOwn) {
  HostedGpulet gpulet = HostedGpulet::create(create(1, {"a"}, 0), Time()).value();
  EXPECT_FALSE(devices_.is_simulated(0));
  EXPECT_EQ(devices_.latency(gpulet, batch(1, 1), {&gpulet}).value(), Duration());
  gpulet.held.push_back({});
  EXPECT_EQ(devices_.stretch(gpulet, 1), 1);
}

TEST_F(NodeDevicesTest, AllAreSimulatedIfTheBackendIs) {
  BackendCoreOptions simulated = options();
  simulated.all_simulated = true;
  EXPECT_TRUE(NodeDevices(simulated).is_simulated(0));
}

}  // namespace
}  // namespace gpulet::node::node_devices_test
