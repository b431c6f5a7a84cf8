// The static partitions that MIG-serving is compared with.
#include "research/mig_baselines.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/random.h"
#include "tests/schedule/worked.h"
#include "tests/support/mig/workloads.h"

namespace gpulet::research {
namespace {

using namespace schedule::mig;  // NOLINT(google-build-using-namespace)
using partition::MigGeometry;
using partition::MigInstance;
using schedule::PlannedGpulet;
using schedule::testing::Worked;

// A small random task: rates that grow faster or slower than the profile, and some services that
// are too large for the smallest profiles.
DeploymentTask small_task(std::uint64_t seed, std::uint64_t most_services, double most_devices) {
  Random random(seed);
  const std::vector<std::string_view> names = MigGeometry::names();
  MigGeometry geometry = MigGeometry::of(names[random.below(names.size())]).value();
  if (random.below(4) == 0) geometry = geometry.without_3g_beside_4g();
  DeploymentTask task{geometry, {}};
  const std::uint64_t services = 1 + random.below(most_services);
  for (std::uint64_t index = 0; index < services; ++index) {
    schedule::mig::Service& service = task.services.emplace_back();
    service.name = "s" + std::to_string(index);
    const double of_slice = 10 + 90 * random.uniform();
    const double power = 0.5 + random.uniform();
    const std::uint64_t too_small =
        random.below(3) == 0 ? random.below(geometry.profiles().size()) : 0;
    for (const partition::MigProfile& profile : geometry.profiles()) {
      const bool fits = service.rate_on.size() >= too_small;
      service.rate_on.push_back(fits ? of_slice * std::pow(profile.slices, power) : 0);
    }
    service.need = service.rate_on.back() * most_devices * (0.02 + random.uniform());
  }
  return task;
}

TwoPhaseOptions one_round() {
  TwoPhaseOptions options;
  options.most_rounds = 1;
  return options;
}

RC_GTEST_PROP(MigBaselines, MakeValidDeploymentsThatAreNotBelowTheBound, (std::uint64_t seed)) {
  const DeploymentTask task = small_task(seed, 8, 4);
  const double whole_instances = lower_bound_of_whole_instances(task);
  for (const Deployment& deployment :
       {whole_devices(task), small_instances(task), fixed_mix(task)}) {
    RC_ASSERT(faults(deployment, task).empty());
    RC_ASSERT(static_cast<double>(deployment.devices.size()) >= whole_instances - 1e-6);
  }
}

TEST(MigBaselines, UseMoreDevicesThanTheOptimiser) {
  const auto models = schedule::mig::testing::generated_models(1);
  const auto workloads = schedule::mig::testing::generated_workloads(1, models.size());
  for (std::size_t workload = 0; workload < 4; ++workload) {
    const DeploymentTask task = schedule::mig::testing::task_of(workloads[workload], models,
                                                                MigGeometry::of("a100-40").value());
    const std::size_t optimised = two_phase(task, one_round()).devices.size();
    EXPECT_LT(optimised, whole_devices(task).devices.size()) << workload;
    EXPECT_LT(optimised, small_instances(task).devices.size()) << workload;
    EXPECT_LT(optimised, fixed_mix(task).devices.size()) << workload;
  }
}

TEST(MigBaselines, LeaveOutServicesThatNoProfileServes) {
  const DeploymentTask nothing{MigGeometry::of("a100-40").value(), {{"a", 5, {0, 0, 0, 0, 0}}}};
  for (const Deployment& deployment :
       {whole_devices(nothing), small_instances(nothing), fixed_mix(nothing)})
    EXPECT_TRUE(deployment.devices.empty());
}

TEST(MigBaselines, StaticPartitionsServeLessThanOneRequestPerSecond) {
  const DeploymentTask slow{MigGeometry::of("a100-40").value(), {{"a", 0.5, {1, 2, 3, 4, 7}}}};
  for (const Deployment& deployment :
       {whole_devices(slow), small_instances(slow), fixed_mix(slow)}) {
    EXPECT_EQ(deployment.devices.size(), 1U);
    EXPECT_TRUE(faults(deployment, slow).empty());
  }
}

TEST(MigBaselines, SmallInstancesUseTheSlicesBesideLargerOnes) {
  // The layout with the most 2g has a 1g too.
  const DeploymentTask task{MigGeometry::of("a100-40").value(),
                            {{"small", 1, {1, 2, 3, 4, 7}}, {"large", 2, {0, 2, 3, 4, 7}}}};
  const Deployment deployment = small_instances(task);
  EXPECT_EQ(deployment.devices.size(), 1U);
  EXPECT_TRUE(faults(deployment, task).empty());
}

TEST(MigBaselines, StaticPartitionsHaveTheirLayouts) {
  const MigGeometry a100 = MigGeometry::of("a100-40").value();
  const DeploymentTask task{a100, {{"a", 14, {1, 2, 3, 4, 7}}, {"large", 6, {0, 2, 3, 4, 7}}}};
  const Deployment whole = whole_devices(task);
  EXPECT_EQ(whole.devices.size(), 3U);
  EXPECT_EQ(whole.devices.front(), (DeviceConfiguration{{{7, 0}, 0}}));
  const Deployment small = small_instances(task);
  EXPECT_EQ(small.devices.size(), 3U) << "three 2g and a 1g, then seven and six 1g";
  const Deployment mixed = fixed_mix(task);
  EXPECT_EQ(mixed.devices.size(), 3U);
  for (const DeviceConfiguration& device : mixed.devices) {
    EXPECT_EQ(device.front().instance, (MigInstance{4, 0}));
    for (const PlacedService& placed : device) EXPECT_EQ(placed.service, device.front().service);
  }
}

// ---- as policies

// A100s with one model, whose batches take as many milliseconds more for each slice less.
Worked a100s(std::uint32_t devices) {
  Worked worked;
  profile::Profile& gpu = (*worked.profiles)["gpu"];
  gpu.name = "gpu";
  std::vector<profile::LatencySample> samples;
  for (const int percent : {14, 28, 42, 57, 100}) {
    for (const std::uint32_t batch : {1U, 32U})
      samples.push_back({batch, Share{percent}, (1 + 0.5 * batch) * 100 / percent});
  }
  profile::ModelProfile measured{profile::LatencyTable::create(samples).value(), {}, {}};
  measured.memory_mb = 3000;
  gpu.models.emplace("a", std::move(measured));
  schedule::testing::add_devices(worked, "n0", "gpu", devices);
  schedule::testing::divide_by_mig(worked, "a100-80");
  return worked;
}

TEST(MigBaselines, UseTheirInstances) {
  Worked worked = a100s(40);
  worked.input.demands = {{"a", 2000, 150, 32}};
  const auto sizes = [&](std::string_view name) {
    std::set<std::uint32_t> slices;
    for (const PlannedGpulet& gpulet : schedule::testing::policy(name)->plan(worked.input).gpulets)
      slices.insert(gpulet.instance->slices);
    return slices;
  };
  EXPECT_EQ(sizes("mig-whole"), (std::set{7U}));
  EXPECT_EQ(sizes("mig-7x1"), (std::set{1U}));
  EXPECT_EQ(sizes("mig-mix"), (std::set{1U, 2U, 4U}));
}

}  // namespace
}  // namespace gpulet::research
