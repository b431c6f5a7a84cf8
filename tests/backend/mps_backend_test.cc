// A backend with a GPU that is divided by MPS.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/backend/gpu_backend.h"
#include "tests/support/names.h"

namespace gpulet::backend {
namespace {

using support::has_line;
using support::names;

class MpsBackendTest : public GpuBackendTest {
 protected:
  void start() { GpuBackendTest::start("mps"); }
  void start_two() { GpuBackendTest::start_two("mps", 20, 80); }
};

TEST_F(MpsBackendTest, OffersTheGpuWithItsTraits) {
  start();
  const auto devices = frontend_->heard<Hello>().at(0).devices;
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(devices[0].mechanism, "mps");
  EXPECT_EQ(devices[0].traits.fault, partition::FaultReach::device);
  EXPECT_TRUE(devices[0].traits.limits_memory);
  EXPECT_DOUBLE_EQ(devices[0].device.memory_mb, 143771);
}

TEST_F(MpsBackendTest, ConcurrentGpuletsGetTheirOwnShares) {
  start_two();
  EXPECT_EQ(last_report(1)->found, (partition::FoundShare{true, 26, 132}));
  EXPECT_EQ(last_report(2)->found, (partition::FoundShare{true, 105, 132}));
  ASSERT_EQ(daemon_->proxies().size(), 2U);
  EXPECT_TRUE(
      has_line(environment_of(daemon_->proxies()[0]), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=20"));
  EXPECT_TRUE(
      has_line(environment_of(daemon_->proxies()[1]), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80"));
  send_batch(1, 1);
  send_batch(2, 2);
  ASSERT_TRUE(run_until([this] { return results().size() == 2; }));
  EXPECT_EQ(results().at(1), StatusCode::ok);
}

TEST_F(MpsBackendTest, AProcessOutsideOfMpsDoesNotServe) {
  mps_.set("outside");
  start();
  ask(1, 20);
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::failed); }));
}

TEST_F(MpsBackendTest, AFaultEndsAllGpuletsAndAllAreRestarted) {
  start_two();
  mps_.set("fault");
  mps_.set("status", "FAULT\n");
  const auto before = daemon_->proxies();
  send_batch(11, 1);
  send_batch(21, 2);
  ASSERT_TRUE(run_until([this] { return results().size() == 2; }));
  EXPECT_EQ(results().at(11), StatusCode::unavailable) << "so that it runs elsewhere";
  EXPECT_EQ(results().at(21), StatusCode::unavailable);
  // More faults than the load attempts of a gpulet.
  ASSERT_TRUE(run_until([this] {
    const auto refused = mps_.recorded("refused");
    return std::count(refused.begin(), refused.end(), '\n') >= 7;
  }));
  EXPECT_TRUE(is(1, GpuletState::restarting));
  EXPECT_TRUE(is(2, GpuletState::restarting));
  for (const pid_t process : before) EXPECT_NE(::kill(process, 0), 0);
  EXPECT_FALSE(mps_.received("terminate_client")) << "nothing runs on the GPU after a fault";
  mps_.clear("fault");
  mps_.clear("status");
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::ready) && is(2, GpuletState::ready); }));
  EXPECT_EQ(last_report(1)->found.sms, 26U);
  send_batch(12, 1);
  ASSERT_TRUE(run_until([this] { return results().size() == 3; }));
  EXPECT_EQ(results().at(12), StatusCode::ok);
}

TEST_F(MpsBackendTest, ALoadingProcessIsTerminatedThroughTheDaemon) {
  start();
  mps_.set("slow");
  ask(1, 20);
  ASSERT_TRUE(run_until(
      [this] { return daemon_->proxies().size() == 1 && !mps_.recorded("servers").empty(); }));
  const auto process = daemon_->proxies()[0];
  frontend_->say(RetireGpulet{{1}});
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::gone); }));
  EXPECT_TRUE(mps_.received("terminate_client 701 " + std::to_string(process)));
  mps_.clear("slow");
}

TEST_F(MpsBackendTest, ADeadDaemonIsRestartedForLaterGpulets) {
  start();
  const auto file = mps_.pid_file(kUuid);
  const auto died = support::FakeMps::pid_in(file);
  support::FakeMps::kill_daemon(file);
  ASSERT_TRUE(run_until([&] {
    const auto now = support::FakeMps::pid_in(file);
    return now != 0 && now != died;
  }));
  ask(1, 20);
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::ready); }));
  EXPECT_TRUE(last_report(1)->found.held);
}

TEST_F(MpsBackendTest, ItsDestructorTerminatesClientsAndTheDaemon) {
  start_two();
  const auto processes = daemon_->proxies();
  ::kill(processes.at(0), SIGSTOP);  // it does not notice that its channel closes
  daemon_.reset();
  EXPECT_TRUE(mps_.received("terminate_client 701 " + std::to_string(processes.at(0))));
  for (const pid_t process : processes) EXPECT_NE(::kill(process, 0), 0);
  EXPECT_TRUE(mps_.received("quit -t"));
}

// ---- absent GPUs and daemons

TEST_F(MpsBackendTest, AMissingGpuIsAbsentAndOthersAreOffered) {
  auto absent = described("mps");
  absent.gpu = "3";
  auto setup = make_setup(configured({absent, described("mps")}), gpu_environment());
  ASSERT_TRUE(setup.ok()) << setup.status().to_string();
  ASSERT_EQ(setup.value().devices.size(), 1U);
  EXPECT_EQ(setup.value().devices[0].offer.device.key.device, 0U);
  ASSERT_EQ(setup.value().absent.size(), 1U);
  EXPECT_TRUE(names(setup.value().absent[0], "\"3\""));
}

TEST_F(MpsBackendTest, FailsIfNoDeviceIsLeft) {
  auto without_mps = gpu_environment();
  without_mps.mps.control = "nvidia-cuda-mps-control-of-nobody";
  const auto no_control = make_setup(configured({described("mps")}), without_mps);
  EXPECT_EQ(no_control.status().code(), StatusCode::unavailable);

  auto without_driver = gpu_environment();
  without_driver.nvml = "libnvidia-ml-of-nobody.so.1";
  const auto no_driver = make_setup(configured({described("mps")}), without_driver);
  EXPECT_EQ(no_driver.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(no_driver.status(), "libnvidia-ml-of-nobody.so.1"));

  gpus_.write("gpu\nuuid " + kUuid + "\nmig 1\n");
  EXPECT_EQ(make_setup(configured({described("mps")}), gpu_environment()).status().code(),
            StatusCode::unavailable);
  gpus_.write("gpu\nuuid " + kUuid + "\ncompute_mode 2\n");
  EXPECT_EQ(make_setup(configured({described("mps")}), gpu_environment()).status().code(),
            StatusCode::unavailable);
}

}  // namespace
}  // namespace gpulet::backend
