// Measures that a busy loop in a gpulet of p percent gets p percent of its device's time.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "gpulet/partition/drivers/drivers.h"
#include "partition/drivers/process_control.h"
#include "tests/support/busy_child.h"

namespace gpulet::partition {
namespace {

using support::BusyChild;

constexpr std::chrono::seconds kMeasured(5);
constexpr double kTolerance = 0.03;

double measure_share(const BusyChild& child, std::chrono::seconds measured = kMeasured) {
  const auto begin = std::chrono::steady_clock::now();
  const double used = child.cpu_seconds();
  // The duration of the measurement, not a wait for an event.
  std::this_thread::sleep_for(measured);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  return (child.cpu_seconds() - used) / passed.count();
}

class ShareTest : public ::testing::TestWithParam<CpuMechanism> {};

INSTANTIATE_TEST_SUITE_P(Mechanisms, ShareTest,
                         ::testing::Values(CpuMechanism::cgroup, CpuMechanism::pacing),
                         [](const auto& instance) {
                           return instance.param == CpuMechanism::cgroup ? "Cgroup" : "Pacing";
                         });

TEST_P(ShareTest, ABusyLoopGetsItsTwentyPercentOfACore) {
  auto made = make_cpu_quota_driver({usable_cores().back()}, GetParam());
  if (!made.ok()) GTEST_SKIP() << made.status().to_string();
  auto& driver = *made.value();
  const BusyChild child;
  ASSERT_TRUE(driver.grant({{1}, {20}}).ok());
  const auto attached = driver.attach({1}, child.pid());
  ASSERT_TRUE(attached.ok()) << attached.to_string();
  ASSERT_TRUE(driver.activate({1}).ok());
  EXPECT_NEAR(measure_share(child), 0.20, kTolerance) << driver.mechanism();
}

TEST_P(ShareTest, ABusyLoopFollowsItsCoresWhileItRuns) {
  auto made = make_cpu_quota_driver({usable_cores().back()}, GetParam());
  if (!made.ok()) GTEST_SKIP() << made.status().to_string();
  auto& driver = *made.value();
  const BusyChild child;
  ASSERT_TRUE(driver.grant({.gpulet = {1}, .share = {1}, .adjustable = true}).ok());
  ASSERT_TRUE(driver.attach({1}, child.pid()).ok());
  ASSERT_TRUE(driver.activate({1}).ok());
  for (const double cores : {0.4, 0.1, 0.25}) {
    ASSERT_TRUE(driver.adjust({1}, cores).ok());
    EXPECT_NEAR(measure_share(child, std::chrono::seconds(2)), cores, kTolerance)
        << driver.mechanism();
  }
}

// Compares the two processes with each other, because other processes may use the core as well.
TEST(Share, AProcessThatLoadsYieldsToAServingNeighbour) {
  auto made = make_cpu_quota_driver({usable_cores().back()}, CpuMechanism::cgroup);
  if (!made.ok()) GTEST_SKIP() << made.status().to_string();
  auto& driver = *made.value();
  const BusyChild serving;
  const BusyChild loading;
  ASSERT_TRUE(driver.grant({{1}, {60}}).ok());
  ASSERT_TRUE(driver.attach({1}, serving.pid()).ok());
  ASSERT_TRUE(driver.activate({1}).ok());
  ASSERT_TRUE(driver.grant({{2}, {40}}).ok());
  ASSERT_TRUE(driver.attach({2}, loading.pid()).ok());
  // Otherwise it would load on an idle core.
  ASSERT_TRUE(bind_to_cores(loading.pid(), {usable_cores().back()}).ok());
  const double loading_before = loading.cpu_seconds();
  const double served = measure_share(serving);
  const double loaded = (loading.cpu_seconds() - loading_before) / to_seconds(kMeasured);
  EXPECT_GT(served, 1.2 * loaded);
}

TEST(ShareOfABusyCore, LowPriorityLeavesItToOthers) {
  const std::vector<std::uint32_t> core{usable_cores().back()};
  auto normal = make_cpu_quota_driver(core, CpuMechanism::cgroup);
  if (!normal.ok()) GTEST_SKIP() << normal.status().to_string();
  auto low = make_cpu_quota_driver(core, CpuMechanism::cgroup, {}, CpuPriority::low);
  ASSERT_TRUE(low.ok()) << low.status().to_string();
  const BusyChild serving;
  const BusyChild measured;
  const auto start = [](PartitionDriver& driver, GpuletId gpulet, const BusyChild& child) {
    return driver.grant({.gpulet = gpulet, .share = {100}}).ok() &&
           driver.attach(gpulet, child.pid()).ok() && driver.activate(gpulet).ok();
  };
  ASSERT_TRUE(start(*normal.value(), {1}, serving));
  ASSERT_TRUE(start(*low.value(), {2}, measured));
  const double before = measured.cpu_seconds();
  const double served = measure_share(serving);
  const double rest = (measured.cpu_seconds() - before) / kMeasured.count();
  EXPECT_GT(served, 4 * rest) << served << " and " << rest;
}

}  // namespace
}  // namespace gpulet::partition
