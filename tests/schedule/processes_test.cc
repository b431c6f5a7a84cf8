// The number of processes in a MIG instance, which a plan chooses where the profile knows what
// several cost, and models that take turns in an instance.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/config/readers.h"
#include "gpulet/profile/store.h"
#include "gpulet/schedule/check.h"
#include "tests/schedule/breaks.h"
#include "tests/schedule/worked.h"

namespace gpulet::schedule {
namespace {

using testing::policy;
using testing::violations;
using testing::Worked;

const std::filesystem::path kFolder =
    std::filesystem::path(GPULET_SOURCE_DIR) / "profiles/reference-a100-mig";

// The demands of one of the authors' scenarios on so many A100.
Worked scenario(const std::string& number, std::uint32_t devices, std::uint32_t processes) {
  Worked worked;
  worked.profiles->emplace("reference-a100-mig", profile::read_profile(kFolder).value());
  testing::add_devices(worked, "n0", "reference-a100-mig", devices);
  testing::divide_by_mig(worked, "a100-80", processes);
  auto reader = config::CsvReader::read_file(kFolder / "demands.csv").value();
  const auto columns = reader.require_columns({"scenario", "model", "rate", "slo_ms"});
  while (reader.next()) {
    if (reader.text(columns[0]) != number) continue;
    worked.input.demands.push_back({std::string(reader.text(columns[1])),
                                    reader.number(columns[2], config::above(0)),
                                    reader.number(columns[3], config::above(0)), 128});
  }
  return worked;
}

std::map<std::pair<DeviceKey, partition::MigInstance>, std::uint32_t> processes_of(
    const Plan& plan) {
  std::map<std::pair<DeviceKey, partition::MigInstance>, std::uint32_t> processes;
  for (const PlannedGpulet& gpulet : plan.gpulets) ++processes[{gpulet.device, *gpulet.instance}];
  return processes;
}

TEST(Processes, ReduceTheDevicesOfTheReferenceScenarios) {
  for (const auto& [number, devices] : {std::pair{"1", 4}, {"2", 6}, {"3", 9}}) {
    Worked alone = scenario(number, static_cast<std::uint32_t>(devices), 1);
    Worked shared = scenario(number, static_cast<std::uint32_t>(devices), 5);
    for (const std::string_view name : {"cover", "auto", "mig-greedy"}) {
      const Plan one = policy(name)->plan(alone.input);
      const Plan several = policy(name)->plan(shared.input);
      EXPECT_TRUE(one.schedulable()) << name << number;
      EXPECT_TRUE(several.schedulable()) << name << number;
      EXPECT_EQ(violations(one, alone.input), "") << name << number;
      EXPECT_EQ(violations(several, shared.input), "") << name << number;
      EXPECT_LE(several.devices_used(), one.devices_used()) << name << number;
    }
  }
}

// Few requests need one process; a full instance has those that serve the most.
TEST(Processes, AreAsManyAsTheRateNeeds) {
  Worked worked = scenario("1", 1, 5);
  worked.input.demands = {{"resnet50", 10, 200, 128}};
  const Plan few = policy("cover")->plan(worked.input);
  EXPECT_EQ(few.gpulets.size(), 1U);
  worked.input.demands[0].rate = 3000;
  const Plan many = policy("cover")->plan(worked.input);
  EXPECT_EQ(violations(many, worked.input), "");
  std::uint32_t most = 0;
  for (const auto& [instance, processes] : processes_of(many)) most = std::max(most, processes);
  EXPECT_GT(most, 1U);
}

TEST(Processes, ShareAnInstanceWithoutOtherModels) {
  Worked worked = scenario("1", 1, 2);
  worked.input.demands = {{"resnet50", 200, 200, 128}, {"vgg19", 50, 400, 128}};
  const auto one_of = [&worked](std::uint32_t processes) {
    PlannedGpulet gpulet;
    gpulet.device = worked.input.cluster.devices[0].key;
    gpulet.size = Share{42};
    gpulet.instance = partition::MigInstance{3, 4};
    for (const ModelDemand& demand : worked.input.demands) {
      const double latency_ms = worked.profiles->begin()
                                    ->second.find(demand.name)
                                    ->latency_of(processes)
                                    .latency_ms(16, Share{42})
                                    .value();
      gpulet.duty_cycle_ms += latency_ms;
      gpulet.assignments.push_back(
          {demand.name, demand.rate / processes, 16, latency_ms, 1, demand.slo_ms});
    }
    return gpulet;
  };
  Plan plan;
  plan.gpulets = {one_of(1)};
  EXPECT_EQ(violations(plan, worked.input), "");
  plan.gpulets = {one_of(2), one_of(2)};
  EXPECT_TRUE(
      testing::breaks(plan, worked.input,
                      {.cause = ViolationCause::processes_of_models, .found = 2, .expected = 2}));
  // One process beside another is slower than alone.
  worked.input.demands.pop_back();
  plan.gpulets = {one_of(2), one_of(2)};
  EXPECT_EQ(violations(plan, worked.input), "");
  plan.gpulets = {one_of(1), one_of(1)};
  EXPECT_NE(violations(plan, worked.input), "");
}

// A request that just misses a batch waits for the next one of any process.
TEST(Processes, TakeTurns) {
  Worked worked = scenario("1", 1, 4);
  const auto& profile = *worked.profiles->begin()->second.find("resnet50");
  const double latency_ms = profile.latency_of(4).latency_ms(32, Share{42}).value();
  worked.input.demands = {{"resnet50", 4 * 32 * 1000 / latency_ms, 1.25 * latency_ms, 128}};
  PlannedGpulet gpulet;
  gpulet.device = worked.input.cluster.devices[0].key;
  gpulet.size = Share{42};
  gpulet.instance = partition::MigInstance{3, 4};
  gpulet.duty_cycle_ms = latency_ms;
  const ModelDemand& demand = worked.input.demands[0];
  gpulet.assignments = {{demand.name, demand.rate / 4, 32, latency_ms, 1, demand.slo_ms}};
  Plan plan;
  plan.gpulets.assign(4, gpulet);
  EXPECT_EQ(violations(plan, worked.input), "");
  worked.input.demands[0].slo_ms *= 0.99;
  for (PlannedGpulet& one : plan.gpulets) one.assignments[0].slo_ms *= 0.99;
  EXPECT_NE(violations(plan, worked.input), "");
}

TEST(Processes, FollowTheRateWhereThePlanGoesOn) {
  Worked worked = scenario("1", 1, 5);
  worked.input.demands = {{"resnet50", 100, 200, 128}};
  const Plan few = policy("auto")->plan(worked.input);
  ASSERT_EQ(few.gpulets.size(), 1U);
  worked.input.current = &few;
  double rate = 100;
  Plan more = few;
  while (more.gpulets.size() == 1 && rate < 10'000) {
    rate *= 1.2;
    worked.input.demands[0].rate = rate;
    more = policy("auto")->plan(worked.input);
  }
  EXPECT_TRUE(more.schedulable());
  EXPECT_EQ(violations(more, worked.input), "");
  EXPECT_GT(more.gpulets.size(), 1U);
  for (const PlannedGpulet& gpulet : more.gpulets)
    EXPECT_EQ(gpulet.instance, few.gpulets.front().instance);
}

// Eleven models on seven instances at most.
TEST(Cover, LetsModelsTakeTurnsInAnInstance) {
  for (const std::uint32_t processes : {1U, 5U}) {
    for (const Headroom headroom : {Headroom::none, Headroom::poisson}) {
      Worked worked = scenario("5", 1, processes);
      worked.input.options.headroom = headroom;
      for (ModelDemand& demand : worked.input.demands) demand.rate *= 0.02;
      ASSERT_EQ(worked.input.demands.size(), 11U);
      for (const std::string_view name : {"cover", "auto"}) {
        const Plan plan = policy(name)->plan(worked.input);
        EXPECT_TRUE(plan.schedulable()) << name << processes;
        EXPECT_EQ(violations(plan, worked.input), "") << name << processes;
        EXPECT_TRUE(std::any_of(plan.gpulets.begin(), plan.gpulets.end(),
                                [](const auto& one) { return one.assignments.size() > 1; }));
      }
    }
  }
}

}  // namespace
}  // namespace gpulet::schedule
