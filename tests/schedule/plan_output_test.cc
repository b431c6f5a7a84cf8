// How a new plan keeps to the devices and gpulets of the one in force.
#include "schedule/plan_output.h"

#include <gtest/gtest.h>

#include "tests/schedule/worked.h"

namespace gpulet::schedule::plan_output_test {
namespace {

using testing::Worked;

// Indices of the sizes and of the models.
constexpr std::uint32_t k20 = 0;
constexpr std::uint32_t k50 = 2;
constexpr std::uint32_t k80 = 4;
constexpr std::size_t kA = 0;
constexpr std::size_t kB = 1;

Worked four_models() {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}, {"d", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", 2);
  for (const char* const name : {"a", "b", "c", "d"})
    worked.input.demands.push_back({name, 10, 1000, 32});
  return worked;
}

PlannedGpulet gpulet_on(std::uint32_t device, int percent, const std::string& model) {
  PlannedGpulet gpulet;
  gpulet.device = {"n0", device};
  gpulet.size = Share{percent};
  gpulet.duty_cycle_ms = 100;
  gpulet.assignments = {{model, 10, 1, 10, 1, 1000}};
  return gpulet;
}

TEST(AssignDevices, TakesTheDeviceThatHasTheLargestGpulet) {
  Worked worked = four_models();
  Plan current;
  current.gpulets = {gpulet_on(0, 60, "c"), gpulet_on(0, 20, "b"), gpulet_on(1, 80, "a"),
                     gpulet_on(1, 20, "d")};
  worked.input.current = &current;
  PlanContext context(worked.input);
  PlanBuilder builder(context);
  const std::uint32_t device = builder.open(0);
  builder.add_gpulet(device, k20, kB, 10);
  builder.add_gpulet(device, k80, kA, 10);
  EXPECT_EQ(assign_devices(builder), (std::vector<std::uint32_t>{1}));
}

TEST(AssignDevices, FindsTheSameGpuletsInAnyOrder) {
  Worked worked = four_models();
  Plan current;
  current.gpulets = {gpulet_on(0, 50, "b"), gpulet_on(0, 50, "c"), gpulet_on(1, 50, "a"),
                     gpulet_on(1, 50, "b")};
  worked.input.current = &current;
  PlanContext context(worked.input);
  PlanBuilder builder(context);
  const std::uint32_t device = builder.open(0);
  builder.add_gpulet(device, k50, kB, 10);
  builder.add_gpulet(device, k50, kA, 10);
  EXPECT_EQ(assign_devices(builder), (std::vector<std::uint32_t>{1}));
}

TEST(AssignDevices, KeepsTheDeviceOfAGpuletOfAnotherSize) {
  Worked worked = four_models();
  Plan current;
  current.gpulets = {gpulet_on(1, 20, "a")};
  worked.input.current = &current;
  PlanContext context(worked.input);
  PlanBuilder builder(context);
  builder.add_gpulet(builder.open(0), k50, kA, 10);
  EXPECT_EQ(assign_devices(builder), (std::vector<std::uint32_t>{1}));
}

// A gpulet of the same size counts more than one of another size.
TEST(AssignDevices, PrefersTheSameSize) {
  Worked worked = four_models();
  Plan current;
  current.gpulets = {gpulet_on(0, 20, "a"), gpulet_on(1, 50, "a")};
  worked.input.current = &current;
  PlanContext context(worked.input);
  PlanBuilder builder(context);
  builder.add_gpulet(builder.open(0), k80, kA, 10);
  builder.add_gpulet(builder.open(0), k20, kA, 10);
  EXPECT_EQ(assign_devices(builder), (std::vector<std::uint32_t>{1, 0}));
}

TEST(KeepUnchangedGpulets, KeepsEachGpuletInForceOnce) {
  Worked worked = four_models();
  Plan current;
  current.gpulets = {gpulet_on(0, 50, "a"), gpulet_on(0, 50, "a")};
  current.gpulets[1].assignments[0].rate *= 1 + 1e-10;
  worked.input.current = &current;
  const PlanContext context(worked.input);
  std::vector<PlannedGpulet> planned{gpulet_on(0, 50, "a"), gpulet_on(0, 50, "a")};
  for (PlannedGpulet& gpulet : planned) gpulet.assignments[0].rate *= 1 + 2e-10;
  keep_unchanged_gpulets(context.input(), planned);
  EXPECT_EQ(planned, current.gpulets);
}

TEST(KeepUnchangedGpulets, LeavesAGpuletThatDiffersByMoreThanRounding) {
  using Change = void (*)(PlannedGpulet&);
  const std::vector<Change> changes{
      [](PlannedGpulet& gpulet) { gpulet.device.device = 1; },
      [](PlannedGpulet& gpulet) { gpulet.size = Share{60}; },
      [](PlannedGpulet& gpulet) {
        gpulet.instance = partition::MigInstance{3, 0};
      },
      [](PlannedGpulet& gpulet) { gpulet.duty_cycle_ms *= 1 + 1e-8; },
      [](PlannedGpulet& gpulet) { gpulet.assignments[0].model = "b"; },
      [](PlannedGpulet& gpulet) { gpulet.assignments[0].batch = 2; },
      [](PlannedGpulet& gpulet) { gpulet.assignments[0].rate *= 1 + 1e-8; },
      [](PlannedGpulet& gpulet) { gpulet.assignments[0].latency_ms *= 1 + 1e-8; },
      [](PlannedGpulet& gpulet) { gpulet.assignments[0].slo_ms *= 1 + 1e-8; },
      [](PlannedGpulet& gpulet) { gpulet.assignments.push_back(gpulet.assignments[0]); }};
  Worked worked = four_models();
  Plan current;
  current.gpulets = {gpulet_on(0, 50, "a")};
  worked.input.current = &current;
  const PlanContext context(worked.input);
  for (std::size_t index = 0; index < changes.size(); ++index) {
    PlannedGpulet changed = gpulet_on(0, 50, "a");
    changes[index](changed);
    std::vector<PlannedGpulet> planned{changed};
    keep_unchanged_gpulets(context.input(), planned);
    EXPECT_EQ(planned.front(), changed) << "change " << index;
  }
}

}  // namespace
}  // namespace gpulet::schedule::plan_output_test
