// A backend whose GPU disappears and returns.
#include <gtest/gtest.h>

#include <string>

#include "tests/backend/gpu_backend.h"

namespace gpulet::backend {
namespace {

class GpuMonitorTest : public GpuBackendTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void start_two() { GpuBackendTest::start_two(GetParam(), 20, 80); }
  [[nodiscard]] std::vector<DeviceReport> reports() const {
    return frontend_->heard<DeviceReport>();
  }
};

INSTANTIATE_TEST_SUITE_P(Partitionings, GpuMonitorTest, ::testing::Values("mps", "green"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(GpuMonitorTest, ALostGpuIsWithdrawnAndServesAgainLater) {
  start_two();
  gpus_.write(kOneGpu + "error 15\n");
  ASSERT_TRUE(run_until([this] { return reports().size() == 1; }));
  EXPECT_EQ(reports()[0].fault.code(), StatusCode::unavailable);
  ASSERT_TRUE(run_until(
      [this] { return is(1, GpuletState::restarting) && is(2, GpuletState::restarting); }));
  ask(3, 20);
  ASSERT_TRUE(run_until([this] { return is(3, GpuletState::failed); }));
  ASSERT_TRUE(run_until([this] { return daemon_->proxies().empty(); }));
  gpus_.write(kOneGpu);
  ASSERT_TRUE(run_until([this] { return reports().size() >= 2; }));
  EXPECT_TRUE(reports().back().fault.ok());
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::ready) && is(2, GpuletState::ready); }));
}

TEST_P(GpuMonitorTest, AGpuThatDisappearsIsLost) {
  start_two();
  gpus_.write("driver_version 580.95.05\n");
  ASSERT_TRUE(run_until([this] { return reports().size() == 1; }));
  EXPECT_EQ(reports()[0].fault.code(), StatusCode::not_found);
}

TEST_P(GpuMonitorTest, AHangingNvmlNeitherLosesAGpuNorDelaysTheEnd) {
  start_two();
  gpus_.write("nvml_hang 1\n" + kOneGpu);
  send_batch(1, 1);
  ASSERT_TRUE(run_until([this] { return results().size() == 1; }));
  EXPECT_EQ(results().at(1), StatusCode::ok);
  daemon_.reset();
  EXPECT_TRUE(reports().empty());
  gpus_.write(kOneGpu);
}

}  // namespace
}  // namespace gpulet::backend
