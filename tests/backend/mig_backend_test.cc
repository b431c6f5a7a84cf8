// A backend with a GPU that is divided by MIG.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/backend/gpu_backend.h"
#include "tests/support/gpu/fake_mig.h"
#include "tests/support/names.h"

namespace gpulet::backend {
namespace {

using partition::MigInstance;
using support::has_line;

class MigBackendTest : public GpuBackendTest {
 protected:
  static config::DeviceConfig mig(std::uint32_t processes = 1) {
    config::DeviceConfig device;
    device.type = "h200";
    device.partitioning = "mig";
    device.geometry = partition::MigGeometry::of("h200").value();
    device.processes_per_instance = processes;
    device.sizes = {{14}, {28}, {42}, {57}, {100}};
    device.max_partitions = 7 * processes;
    return device;
  }
  void start(std::uint32_t processes = 1) {
    gpus_.write(kOneGpu + "mig 1\nmig_takes_ms 20\n");
    GpuBackendTest::start({mig(processes)});
  }
  void ask(std::uint64_t gpulet, MigInstance instance) {
    const TensorSpec tensor{"x", DataType::uint8, {kRequestBytes}};
    CreateGpulet asked{{gpulet}, 0, {}, {{"echo", model_sha256(), {tensor}, {tensor}, 4}}};
    asked.size = mig().geometry->share_of(instance.slices);
    asked.instance = instance;
    frontend_->say(asked);
  }
};

TEST_F(MigBackendTest, AGpuletGetsItsInstanceOnceCreated) {
  start();
  const auto devices = frontend_->heard<Hello>().at(0).devices;
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(devices[0].mechanism, "mig");
  EXPECT_EQ(devices[0].traits.fault, partition::FaultReach::process);
  ask(1, {3, 4});
  ask(2, {2, 0});
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::ready) && is(2, GpuletState::ready); }))
      << last_report(1)->status.to_string();
  EXPECT_EQ(last_report(1)->found, (partition::FoundShare{true, 60, 132}));
  EXPECT_EQ(last_report(2)->found, (partition::FoundShare{true, 32, 132}));
  send_batch(1, 1);
  send_batch(2, 2);
  ASSERT_TRUE(run_until([this] { return results().size() == 2; }));
  EXPECT_EQ(results().at(1), StatusCode::ok);
  EXPECT_EQ(results().at(2), StatusCode::ok);

  // Its instance becomes free for another gpulet, beside the one that serves.
  frontend_->say(RetireGpulet{{2}});
  ASSERT_TRUE(run_until([this] { return is(2, GpuletState::gone); }));
  ask(3, {4, 0});
  ASSERT_TRUE(run_until([this] { return is(3, GpuletState::ready); }))
      << last_report(3)->status.to_string();
  EXPECT_EQ(support::FakeMig::read().instances.size(), 2U);
  EXPECT_TRUE(is(1, GpuletState::ready));
}

TEST_F(MigBackendTest, ProcessesOfAnInstanceAreClientsOfItsDaemon) {
  start(2);
  ask(1, {3, 0});
  ask(2, {3, 0});
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::ready) && is(2, GpuletState::ready); }))
      << last_report(1)->status.to_string();
  const std::string uuid = support::FakeMig::read().instances.at(0).uuid();
  for (const pid_t process : daemon_->proxies()) {
    EXPECT_TRUE(has_line(environment_of(process), "CUDA_VISIBLE_DEVICES=" + uuid));
    EXPECT_TRUE(has_line(environment_of(process),
                         "CUDA_MPS_PIPE_DIRECTORY=" + mps_.pid_file(uuid).parent_path().string()));
  }
}

TEST_F(MigBackendTest, AGpuWithoutMigModeOrWithAnotherGeometryIsNotOffered) {
  gpus_.write(kOneGpu + "mig 0\n");
  EXPECT_EQ(make_setup(configured({mig()}), gpu_environment()).status().code(),
            StatusCode::unavailable);
  gpus_.write(kOneGpu + "mig 1\nmig_slices 4\n");
  const auto other = make_setup(configured({mig()}), gpu_environment());
  EXPECT_EQ(other.status().code(), StatusCode::invalid);
  gpus_.write(kOneGpu + "mig 1\n");
  EXPECT_EQ(make_setup(configured({described("mps")}), gpu_environment()).status().code(),
            StatusCode::unavailable);
}

}  // namespace
}  // namespace gpulet::backend
