// BackendCore with a failing device.
#include <gtest/gtest.h>

#include "gpulet/node/backend_core.h"
#include "tests/backend/core_bench.h"

namespace gpulet::node {
namespace {

using enum GpuletPhase;
using partition::DeviceHealth;
using std::chrono::milliseconds;
using std::chrono::seconds;

const Status kFault{StatusCode::internal, "an illegal memory access was encountered"};
const Status kServerRecovers{StatusCode::unavailable, "the MPS server is not ready"};

BatchCompleted lost(std::uint64_t gpulet, std::uint64_t batch_id) {
  BatchCompleted event{{gpulet}, {{batch_id}, kFault, 0, {}, {}}, Bytes()};
  event.ran.device = DeviceHealth::lost;
  return event;
}

BackendEffects refuse(CoreBench& bench, std::uint64_t gpulet) {
  bench.on(ProxyStarted{{gpulet}});
  auto effects = bench.on(ProxyLoaded{{gpulet}, kServerRecovers, {}, {}, DeviceHealth::not_ready});
  EXPECT_EQ(all<KillProxy>(effects).size(), 1U);
  return bench.end(gpulet);
}

// Two gpulets serve on the device, one loads there, one serves elsewhere.
class DeviceFault : public ::testing::Test {
 protected:
  void SetUp() override {
    bench_.connect();
    bench_.make_ready(1, kSharedFate);
    bench_.make_ready(2, kSharedFate);
    bench_.ask(3, kSharedFate);
    bench_.make_ready(4, 0);
    bench_.arrive(batch(11, 1));
    bench_.arrive(batch(21, 2));
    bench_.arrive(batch(41, 4));
  }

  CoreBench bench_;
};

TEST_F(DeviceFault, EndsAllProcessesOfThatDeviceOnly) {
  const auto effects = bench_.on(lost(1, 11));
  std::vector<GpuletId> killed;
  for (const auto& kill : all<KillProxy>(effects)) killed.push_back(kill.gpulet);
  EXPECT_EQ(killed, (std::vector<GpuletId>{{1}, {2}, {3}}));
  EXPECT_EQ(bench_.phase(4), ready);
  EXPECT_TRUE(sent<BatchResult>(bench_.ran(4, 41)).at(0).status.ok());
}

TEST_F(DeviceFault, ReturnsBatchesInFlightAfterTheReport) {
  const auto effects = bench_.on(lost(1, 11));
  const auto results = sent<BatchResult>(effects);
  ASSERT_EQ(results.size(), 2U);
  for (const auto& result : results)
    EXPECT_EQ(result.status.code(), StatusCode::unavailable) << "so that it runs elsewhere";
  std::vector<std::string> order;
  for (const auto& tell : all<SendToFrontend>(effects)) {
    if (const auto* report = std::get_if<GpuletReport>(&tell.message)) {
      EXPECT_EQ(report->state, GpuletState::restarting);
      order.push_back("restarts " + std::to_string(report->id.value));
    } else if (const auto* result = std::get_if<BatchResult>(&tell.message)) {
      order.push_back("batch " + std::to_string(result->id.value));
    }
  }
  EXPECT_EQ(order, (std::vector<std::string>{"restarts 1", "batch 11", "restarts 2", "batch 21"}));
  EXPECT_EQ(sent<BatchResult>(bench_.arrive(batch(22, 2))).at(0).status.code(),
            StatusCode::unavailable);
}

TEST_F(DeviceFault, AnswersEachBatchOnceWhenSeveralProcessesReportIt) {
  bench_.on(lost(1, 11));
  EXPECT_TRUE(bench_.on(lost(2, 21)).empty());
  EXPECT_TRUE(sent<GpuletReport>(bench_.end(1)).empty()) << "it was said before";
  EXPECT_EQ(bench_.phase(1), restarting);
}

TEST_F(DeviceFault, IsReportedToANewFrontend) {
  bench_.on(lost(1, 11));
  bench_.disconnect();
  const auto hello = sent<Hello>(bench_.connect());
  ASSERT_EQ(hello.size(), 1U);
  for (const auto& report : hello[0].gpulets) {
    EXPECT_NE(report.state, report.device == kSharedFate ? GpuletState::ready : GpuletState::gone);
  }
}

TEST_F(DeviceFault, RestartsAllGpuletsAfterAnyTime) {
  bench_.on(lost(1, 11));
  for (const std::uint64_t id : {1U, 2U, 3U}) bench_.end(id);
  Duration last{};
  for (int attempt = 0; attempt < 10; ++attempt) {
    const auto before = bench_.now();
    std::size_t started = 0;
    while (started < 3) started += all<StartGpulet>(bench_.wake()).size();
    for (const std::uint64_t id : {1U, 2U, 3U}) {
      const auto reports = sent<GpuletReport>(refuse(bench_, id));
      ASSERT_EQ(bench_.phase(id), restarting) << "never given up: " << reports.size();
    }
    EXPECT_GE(bench_.now() - before, std::min<Duration>(last, seconds(9))) << "ever more patient";
    last = bench_.now() - before;
  }
  std::size_t started = 0;
  while (started < 3) started += all<StartGpulet>(bench_.wake()).size();
  for (const std::uint64_t id : {1U, 2U, 3U}) bench_.load(id);
  for (const std::uint64_t id : {1U, 2U, 3U}) EXPECT_EQ(bench_.phase(id), ready);
}

TEST_F(DeviceFault, ADeviceThatIsNotReadyIsRetriedAtShortIntervals) {
  bench_.ask(5, 0);
  for (int attempt = 0; attempt < 20; ++attempt) {
    const auto before = bench_.now();
    bench_.on(ProxyEnded{{5}, kServerRecovers, DeviceHealth::not_ready});
    ASSERT_EQ(bench_.phase(5), restarting) << "never given up";
    while (all<StartGpulet>(bench_.wake()).empty()) {
    }
    EXPECT_LE(bench_.now() - before, milliseconds(500));
  }
  bench_.load(5);
  EXPECT_EQ(bench_.phase(5), ready);
}

TEST_F(DeviceFault, IsDetectedByALoadingProcess) {
  bench_.on(ProxyStarted{{3}});
  const auto effects = bench_.on(ProxyLoaded{{3}, kFault, {}, {}, DeviceHealth::lost});
  EXPECT_EQ(all<KillProxy>(effects).size(), 3U);
}

TEST_F(DeviceFault, EndsARetiringNeighbourForGood) {
  bench_.command(RetireGpulet{{2}});
  const auto effects = bench_.on(lost(1, 11));
  EXPECT_EQ(sent<BatchResult>(effects).size(), 2U);
  EXPECT_EQ(sent<GpuletReport>(bench_.end(2)).at(0).state, GpuletState::gone);
}

TEST_F(DeviceFault, AffectsOnlyItsProcessIfTheDeviceIsolatesFaults) {
  bench_.make_ready(5, 0);
  bench_.arrive(batch(51, 5));
  const auto effects = bench_.on(lost(5, 51));
  ASSERT_EQ(all<KillProxy>(effects).size(), 1U);
  EXPECT_EQ(all<KillProxy>(effects)[0].gpulet, GpuletId{5});
  EXPECT_EQ(sent<BatchResult>(effects).at(0).status.code(), StatusCode::unavailable);
  bench_.end(5);
  EXPECT_EQ(bench_.phase(5), restarting);
}

// ---- a device that is lost

const Status kGone{StatusCode::unavailable, "GPU is lost"};

TEST_F(DeviceFault, ALostDeviceEndsItsGpuletsUntilItReturns) {
  const auto effects = bench_.on(DeviceHealthReported{kSharedFate, kGone});
  EXPECT_EQ(sent<DeviceReport>(effects).at(0).device, kSharedFate);
  EXPECT_EQ(sent<DeviceReport>(effects).at(0).fault, kGone);
  EXPECT_EQ(all<KillProxy>(effects).size(), 3U);
  EXPECT_EQ(sent<BatchResult>(effects).size(), 2U);
  EXPECT_EQ(bench_.phase(4), ready);
  EXPECT_TRUE(bench_.on(DeviceHealthReported{kSharedFate, kGone}).empty()) << "it was told";
  for (const std::uint64_t id : {1U, 2U, 3U}) bench_.end(id);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(all<StartGpulet>(bench_.wake()).empty()) << "nothing can run there";
    bench_.command(Heartbeat{});
  }
  const auto back = bench_.on(DeviceHealthReported{kSharedFate, {}});
  EXPECT_TRUE(sent<DeviceReport>(back).at(0).fault.ok());
  std::size_t started = 0;
  while (started < 3) started += all<StartGpulet>(bench_.wake()).size();
  for (const std::uint64_t id : {1U, 2U, 3U}) bench_.load(id);
  for (const std::uint64_t id : {1U, 2U, 3U}) EXPECT_EQ(bench_.phase(id), ready);
}

TEST_F(DeviceFault, ALostDeviceAcceptsNoGpuletsAndIsReported) {
  bench_.command(GpuletRequested{create(5, {"fetched"}, kSharedFate), {}});
  EXPECT_EQ(bench_.phase(5), fetching);
  bench_.on(DeviceHealthReported{kSharedFate, kGone});
  EXPECT_EQ(bench_.phase(5), failed) << "its file may come, and it could not start";
  const auto refused = sent<GpuletReport>(bench_.ask(6, kSharedFate));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].state, GpuletState::failed);
  EXPECT_EQ(refused[0].status, kGone);
  bench_.disconnect();
  const auto hello = sent<Hello>(bench_.connect()).at(0);
  EXPECT_EQ(hello.devices[kSharedFate].fault, kGone);
  EXPECT_TRUE(hello.devices[0].fault.ok());
}

TEST_F(DeviceFault, AnUnchangedDeviceIsNotReported) {
  EXPECT_TRUE(bench_.on(DeviceHealthReported{kSharedFate, {}}).empty());
  EXPECT_TRUE(bench_.on(DeviceHealthReported{99, kGone}).empty());
}

TEST_F(DeviceFault, AGpuletOfALostDeviceCanBeRetired) {
  bench_.on(DeviceHealthReported{kSharedFate, kGone});
  bench_.command(RetireGpulet{{1}});
  EXPECT_EQ(sent<GpuletReport>(bench_.end(1)).at(0).state, GpuletState::gone);
  bench_.end(2);
  EXPECT_EQ(sent<GpuletReport>(bench_.command(RetireGpulet{{2}})).at(0).state, GpuletState::gone);
}

TEST(DeviceNotReady, IsRetriedIfNoProcessCouldStart) {
  CoreBench bench;
  bench.connect();
  bench.ask(1, kSharedFate);
  for (int attempt = 0; attempt < 10; ++attempt) {
    ASSERT_EQ(bench.phase(1), starting);
    bench.on(ProxyEnded{{1}, kServerRecovers, DeviceHealth::not_ready});
    ASSERT_EQ(bench.phase(1), restarting);
    while (all<StartGpulet>(bench.wake()).empty()) {  // heartbeats in between
      ASSERT_NE(bench.core().next_wakeup(), kNever);
    }
  }
}

TEST(FoundShare, IsReportedOnceTheProcessHasLoaded) {
  CoreBench bench;
  bench.connect();
  bench.ask(1, kSharedFate);
  bench.on(ProxyStarted{{1}});
  bench.on(ProxyLoaded{{1}, {}, {}, {true, 52, 132}});
  const auto reports = sent<GpuletReport>(bench.on(ShareActive{{1}, {}}));
  EXPECT_EQ(reports.at(0).found, (partition::FoundShare{true, 52, 132}));
}

}  // namespace
}  // namespace gpulet::node
