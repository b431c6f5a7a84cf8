// MIG-serving's two phases as printed.
#include "research/mig_printed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/support/mig/workloads.h"

namespace gpulet::research::mig_printed_test {
namespace {

namespace workloads = schedule::mig::testing;
using namespace schedule::mig;  // NOLINT(google-build-using-namespace)
using ::testing::IsEmpty;

DeploymentTask generated_task(std::uint64_t seed) {
  const std::vector<workloads::Model> models = workloads::generated_models(seed, 8, 0.5);
  const std::vector<workloads::Workload> workloads =
      workloads::generated_workloads(seed, models.size());
  return workloads::task_of(workloads.front(), models,
                            partition::MigGeometry::of("a100-40").value(), 1, {});
}

class MigPrinted : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(MigPrinted, ServesEverythingWithNoFewerDevicesThanTheBound) {
  const DeploymentTask task = generated_task(GetParam());
  TwoPhaseOptions options;
  options.most_rounds = 3;
  for (const Deployment& made : {printed_greedy(task), printed_two_phase(task, options)}) {
    EXPECT_THAT(faults(made, task), IsEmpty());
    EXPECT_GE(static_cast<double>(made.devices.size()), std::floor(lower_bound(task)));
  }
}

TEST_P(MigPrinted, RoundsNeverAddDevices) {
  const DeploymentTask task = generated_task(GetParam());
  TwoPhaseOptions options;
  options.most_rounds = 4;
  std::vector<std::size_t> devices;
  options.go_on = [&](const Progress& progress) {
    devices.push_back(progress.devices);
    return true;
  };
  const Deployment made = printed_two_phase(task, options);
  EXPECT_EQ(devices.front(), printed_greedy(task).devices.size());
  EXPECT_EQ(devices.back(), made.devices.size());
  EXPECT_TRUE(std::is_sorted(devices.rbegin(), devices.rend()));
  EXPECT_EQ(printed_two_phase(task, options), made);
}

INSTANTIATE_TEST_SUITE_P(Seeds, MigPrinted, ::testing::Values(1, 2, 3));

// One service needs the whole device's rate. Its score counts the whole instance's rate although a
// small one would serve the other.
TEST(PrintedGreedy, CountsRatesThatNobodyNeeds) {
  DeploymentTask task{partition::MigGeometry::of("a100-40").value(), {}};
  std::vector<double> proportional;
  for (const partition::MigProfile& profile : task.geometry.profiles())
    proportional.push_back(10.0 * profile.slices);
  task.services = {{"small", 1, proportional}, {"other", 1, proportional}};
  EXPECT_EQ(greedy(task).devices.size(), 1U);
  const Deployment printed = printed_greedy(task);
  EXPECT_THAT(faults(printed, task), IsEmpty());
  EXPECT_EQ(printed.devices.size(), 2U);
}

}  // namespace
}  // namespace gpulet::research::mig_printed_test
