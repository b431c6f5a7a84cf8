// Gpulets with controlled cores.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/backend/core_bench.h"
#include "tests/support/names.h"

namespace gpulet::node {
namespace {

using support::names;

constexpr double kCores = 6;

// Model "a" takes 10 ms on the whole device, 20 on half and 50 on a fifth.
std::shared_ptr<const profile::ProfileSet> measured_on_cores() {
  profile::Profile measured;
  measured.name = "type";
  measured.models.emplace(
      "a", profile::ModelProfile{
               profile::LatencyTable::create({{1, {20}, 50.0}, {1, {50}, 20.0}, {1, {100}, 10.0}})
                   .value(),
               {},
               std::nullopt});
  measured.pairs = {{"a", 1, {50}, "a", 1, {50}, 30.0}};
  return std::make_shared<const profile::ProfileSet>(profile::ProfileSet{{"type", measured}});
}

// A node with a CPU in cgroups, a simulated CPU, and a GPU.
class ControlledCores : public ::testing::Test {
 protected:
  ControlledCores() : bench_(with_cpus()) { bench_.connect(); }

  static BackendCoreOptions with_cpus() {
    BackendCoreOptions options;
    options.devices = {device(0, "cpu_quota"), device(1, "simulated"), device(2, "mps")};
    options.devices[0].device.cores = kCores;
    options.devices[1].device.cores = kCores;
    options.profiles = measured_on_cores();
    return options;
  }

  BackendEffects ask(std::uint64_t gpulet, std::uint32_t of_device = 0,
                     partition::Service service = partition::Service::controlled) {
    auto asked = create(gpulet, {"a"}, of_device);
    asked.size = {1};
    asked.part.service = service;
    return bench_.command(GpuletRequested{std::move(asked), {{"sha-a", "/store/a.pt"}}});
  }
  BackendEffects load(std::uint64_t gpulet) {
    bench_.on(ProxyStarted{{gpulet}});
    bench_.on(ProxyLoaded{{gpulet}, {}});
    return bench_.on(ShareActive{{gpulet}, {}});
  }
  void make_ready(std::uint64_t gpulet, std::uint32_t of_device = 0) {
    ask(gpulet, of_device);
    load(gpulet);
  }
  // The cores of the last adjustment; 0: none.
  static double adjusted(const BackendEffects& effects) {
    const auto adjustments = all<AdjustCores>(effects);
    EXPECT_LE(adjustments.size(), 1U);
    return adjustments.empty() ? 0 : adjustments[0].cores;
  }
  double set(std::uint64_t gpulet, double cores) {
    return adjusted(bench_.command(SetCores{{gpulet}, cores}));
  }
  Duration latency(std::uint64_t id, std::uint64_t gpulet) {
    const auto runs = all<RunOnProxy>(bench_.arrive(batch(id, gpulet, "a", 1)));
    return runs.size() == 1 ? runs[0].batch.simulated_latency : Duration(0);
  }

  CoreBench bench_;
};

TEST_F(ControlledCores, AreSetAtOnceIfTheShareIsActive) {
  const auto started = all<StartGpulet>(ask(1));
  ASSERT_EQ(started.size(), 1U);
  EXPECT_TRUE(started[0].adjustable);
  EXPECT_EQ(adjusted(load(1)), 0) << "nothing was asked for yet: its size holds";
  EXPECT_EQ(set(1, 1.5), 1.5);
  EXPECT_EQ(set(1, 0.1), 0.1);
  EXPECT_TRUE(bench_.on(CoresSet{{1}, {}}).empty());
}

TEST_F(ControlledCores, AreTheLastRequestedOnceTheShareIsActive) {
  ask(1);
  EXPECT_EQ(set(1, 2), 0);
  bench_.on(ProxyStarted{{1}});
  EXPECT_EQ(set(1, 3), 0);
  bench_.on(ProxyLoaded{{1}, {}});
  const auto effects = bench_.on(ShareActive{{1}, {}});
  EXPECT_EQ(sent<GpuletReport>(effects).at(0).state, GpuletState::ready);
  EXPECT_EQ(adjusted(effects), 3);
}

TEST_F(ControlledCores, AreSetForTheNextProcess) {
  make_ready(1);
  set(1, 2.5);
  bench_.end(1);
  EXPECT_EQ(set(1, 0.5), 0) << "it has no process";
  ASSERT_EQ(all<StartGpulet>(bench_.wake()).size(), 1U);
  EXPECT_EQ(adjusted(load(1)), 0.5);
}

TEST_F(ControlledCores, AreNotSetForAFixedShare) {
  const auto started = all<StartGpulet>(ask(1, 0, partition::Service::rounds));
  ASSERT_EQ(started.size(), 1U);
  EXPECT_FALSE(started[0].adjustable);
  load(1);
  EXPECT_TRUE(bench_.command(SetCores{{1}, 1}).empty());
  EXPECT_TRUE(bench_.command(SetCores{{99}, 1}).empty()) << "nobody knows it";
}

TEST_F(ControlledCores, AreRejectedBeyondTheDevice) {
  make_ready(1);
  set(1, 2);
  for (const double cores : {0.0, -1.0, 6.1, std::nan("")}) {
    const auto effects = bench_.command(SetCores{{1}, cores});
    EXPECT_EQ(adjusted(effects), 0);
    const auto reports = sent<GpuletReport>(effects);
    ASSERT_EQ(reports.size(), 1U) << cores;
    EXPECT_EQ(reports[0].state, GpuletState::ready) << "it serves on";
    EXPECT_EQ(reports[0].status.code(), StatusCode::invalid);
  }
  EXPECT_EQ(set(1, kCores * (1 + 1e-12)), kCores) << "rounding";
  bench_.end(1);
  bench_.wake();
  EXPECT_EQ(adjusted(load(1)), kCores) << "what was refused is forgotten";

  const auto refused = sent<GpuletReport>(ask(2, 2));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].state, GpuletState::failed);
  EXPECT_EQ(refused[0].status.code(), StatusCode::invalid);
  EXPECT_TRUE(names(refused[0].status, "device 2"));
}

TEST_F(ControlledCores, ThatADriverRejectsAreReported) {
  make_ready(1);
  set(1, 2);
  const Status why(StatusCode::unavailable, "cannot write");
  const auto reports = sent<GpuletReport>(bench_.on(CoresSet{{1}, why}));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].state, GpuletState::ready);
  EXPECT_EQ(reports[0].status, why);
  bench_.command(RetireGpulet{{1}});
  EXPECT_TRUE(bench_.on(CoresSet{{1}, why}).empty()) << "nobody wants it any more";
}

TEST_F(ControlledCores, DetermineTheLatencyOnASimulatedDevice) {
  make_ready(1, 1);
  ASSERT_EQ(bench_.phase(1), GpuletPhase::ready) << "no profile has its 1 %";
  EXPECT_EQ(latency(1, 1), from_ms(50 * 20)) << "a hundredth of the device";
  bench_.ran(1, 1);
  set(1, 3);
  EXPECT_EQ(latency(2, 1), from_ms(20));
  make_ready(2, 1);
  set(2, 3);
  EXPECT_EQ(latency(3, 2), from_ms(20)) << "a quota keeps the neighbours apart";
}

TEST_F(ControlledCores, ExtendARunningBatchOnASimulatedDevice) {
  make_ready(1, 1);
  set(1, 3);
  const auto stretch = [this](double cores) {
    return all<AdjustCores>(bench_.command(SetCores{{1}, cores})).at(0).stretch;
  };
  EXPECT_EQ(stretch(6), 1) << "none runs";
  ASSERT_EQ(latency(1, 1), from_ms(10));
  EXPECT_NEAR(stretch(3), 2, 1e-6);
  EXPECT_NEAR(stretch(0.6), 5, 1e-6);
  EXPECT_NEAR(stretch(6), 0.1, 1e-6);
}

}  // namespace
}  // namespace gpulet::node
