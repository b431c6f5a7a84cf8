// Devices that are divided by MIG: what check() holds against them, and what policies make of them.
#include "gpulet/schedule/mig.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "gpulet/schedule/check.h"
#include "schedule/plan_builder.h"
#include "schedule/plan_output.h"
#include "tests/schedule/breaks.h"
#include "tests/schedule/generated.h"
#include "tests/schedule/worked.h"
#include "tests/support/names.h"

namespace gpulet::schedule {
namespace {

using partition::MigInstance;
using support::names;
using testing::violations;
using testing::Worked;

// The latency of a batch is the same number of milliseconds for each slice less.
void measure(Worked& worked, const std::string& model, double of_whole_ms, double per_request_ms,
             double memory_mb = 0) {
  profile::Profile& gpu = (*worked.profiles)["gpu"];
  gpu.name = "gpu";
  std::vector<profile::LatencySample> samples;
  for (const int percent : {14, 28, 42, 57, 100}) {
    for (const std::uint32_t batch : {1U, 32U})
      samples.push_back(
          {batch, Share{percent}, (of_whole_ms + per_request_ms * batch) * 100 / percent});
  }
  profile::ModelProfile measured{profile::LatencyTable::create(samples).value(), {}, {}};
  if (memory_mb > 0) measured.memory_mb = memory_mb;
  gpu.models.emplace(model, std::move(measured));
}

Worked a100s(std::uint32_t devices, std::uint32_t processes = 1) {
  Worked worked;
  measure(worked, "a", 1, 0.5, 3000);
  measure(worked, "b", 4, 0.25, 12000);
  testing::add_devices(worked, "n0", "gpu", devices);
  testing::divide_by_mig(worked, "a100-80", processes);
  return worked;
}

PlannedGpulet gpulet_of(const Worked& worked, const std::string& model, MigInstance instance,
                        std::uint32_t batch, double rate, double slo_ms) {
  const partition::MigGeometry& geometry = *worked.input.cluster.devices.front().mig;
  PlannedGpulet gpulet;
  gpulet.device = worked.input.cluster.devices.front().key;
  gpulet.size = geometry.share_of(instance.slices);
  gpulet.instance = instance;
  const double latency_ms =
      *worked.profiles->at("gpu").find(model)->latency.latency_ms(batch, gpulet.size);
  gpulet.duty_cycle_ms = latency_ms;
  gpulet.assignments = {{model, rate, batch, latency_ms, 1, slo_ms}};
  return gpulet;
}

// "a" in a 3g, "b" in a 4g; each with batches of 2.
struct SoundOnMig {
  Worked worked = a100s(1, 2);
  Plan plan;

  SoundOnMig() {
    worked.input.demands = {{"a", 60, 100, 32}, {"b", 20, 100, 32}};
    plan.gpulets = {gpulet_of(worked, "b", {4, 0}, 2, 20, 100),
                    gpulet_of(worked, "a", {3, 4}, 2, 30, 100),
                    gpulet_of(worked, "a", {3, 4}, 2, 30, 100)};
  }
};

TEST(CheckOfMig, AcceptsASoundPlan) {
  const SoundOnMig sound;
  EXPECT_EQ(violations(sound.plan, sound.worked.input), "");
}

struct BrokenRule {
  std::string what;
  std::function<void(SoundOnMig&)> change;
  Violation violation;
};

class CheckOfMigTable : public ::testing::TestWithParam<BrokenRule> {};

TEST_P(CheckOfMigTable, FindsIt) {
  SoundOnMig sound;
  GetParam().change(sound);
  EXPECT_TRUE(testing::breaks(sound.plan, sound.worked.input, GetParam().violation));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, CheckOfMigTable,
    ::testing::Values(
        BrokenRule{"NoInstance",
                   [](SoundOnMig& s) { s.plan.gpulets[0].instance.reset(); },
                   {.cause = ViolationCause::no_instance}},
        BrokenRule{"NoSuchProfile",
                   [](SoundOnMig& s) {
                     s.plan.gpulets[0].instance = {5, 0};
                   },
                   {.cause = ViolationCause::unknown_instance, .instance = MigInstance{5, 0}}},
        BrokenRule{"NoSuchPlace",
                   [](SoundOnMig& s) {
                     s.plan.gpulets[0].instance = {4, 2};
                   },
                   {.cause = ViolationCause::unknown_instance, .instance = MigInstance{4, 2}}},
        BrokenRule{"SharedSlice",
                   [](SoundOnMig& s) {
                     s.plan.gpulets[1].instance = {3, 0};
                   },
                   {.cause = ViolationCause::shared_memory_slice}},
        BrokenRule{
            "WrongSize",
            [](SoundOnMig& s) { s.plan.gpulets[0].size = Share{100}; },
            {.cause = ViolationCause::instance_size, .instance = MigInstance{4, 0}, .found = 100}},
        BrokenRule{"TooManyProcesses",
                   [](SoundOnMig& s) { s.plan.gpulets.push_back(s.plan.gpulets[1]); },
                   {.cause = ViolationCause::too_many_processes,
                    .instance = MigInstance{3, 4},
                    .found = 3,
                    .expected = 2}},
        BrokenRule{"ForeignProcess",
                   [](SoundOnMig& s) {
                     s.plan.gpulets[2] = gpulet_of(s.worked, "b", {3, 4}, 2, 20, 100);
                   },
                   {.cause = ViolationCause::different_models, .instance = MigInstance{3, 4}}},
        BrokenRule{
            "TooMuchMemory",
            [](SoundOnMig& s) { s.worked.profiles->at("gpu").models.at("a").memory_mb = 25000; },
            {.cause = ViolationCause::instance_memory,
             .instance = MigInstance{3, 4},
             .found = 50000,
             .expected = 39.5 * 1024}},
        BrokenRule{"InstanceWithoutMig",
                   [](SoundOnMig& s) { s.worked.input.cluster.devices[0].mig.reset(); },
                   {.cause = ViolationCause::instance_without_mig}},
        BrokenRule{"PapersRule",
                   [](SoundOnMig& s) {
                     auto& mig = s.worked.input.cluster.devices[0].mig;
                     mig = mig->without_3g_beside_4g();
                   },
                   {.cause = ViolationCause::three_beside_four}}),
    [](const auto& instance) { return instance.param.what; });

// Both begin at slice 0 and have four memory slices.
TEST(CheckOfMig, ReportsTwoInstancesThatShareSlicesOnce) {
  SoundOnMig sound;
  sound.plan.gpulets[1].instance = {3, 0};
  const std::vector<Violation> found = check(sound.plan, sound.worked.input);
  const auto shared = std::count_if(found.begin(), found.end(), [](const Violation& violation) {
    return violation.cause == ViolationCause::shared_memory_slice;
  });
  EXPECT_EQ(shared, 1);
}

TEST(ValidateOfMig, RefusesSizesThatAreNotTheProfiles) {
  Worked worked = a100s(1);
  worked.input.cluster.devices[0].sizes = {{20}, {100}};
  const Status status = validate(worked.input);
  EXPECT_EQ(status.code(), StatusCode::invalid);
  EXPECT_TRUE(names(status, "sizes"));
}

TEST(ValidateOfMig, RefusesProcessesWhereMigDividesNothing) {
  Worked worked = a100s(1);
  worked.input.cluster.devices[0].mig.reset();
  worked.input.cluster.devices[0].processes_per_instance = 2;
  const Status status = validate(worked.input);
  EXPECT_EQ(status.code(), StatusCode::invalid);
  EXPECT_TRUE(names(status, "processes_per_instance"));
}

std::vector<std::string_view> mig_policies() {
  std::vector<std::string_view> names = testing::policy_names();
  std::erase_if(names, [](std::string_view name) { return !name.starts_with("mig-"); });
  names.emplace_back("cover");
  return names;
}

TEST(MigPolicies, ServeAndKeepTheRules) {
  for (const std::string_view name : mig_policies()) {
    Worked worked = a100s(40);
    worked.input.demands = {{"a", 5000, 100, 32}, {"b", 3000, 250, 32}};
    const Plan plan = testing::policy(name)->plan(worked.input);
    EXPECT_TRUE(plan.schedulable()) << name;
    EXPECT_EQ(violations(plan, worked.input), "") << name;
  }
}

TEST(MigPolicies, ShowWhatFewerDevicesLeave) {
  Worked worked = a100s(1);
  worked.input.demands = {{"a", 90000, 100, 32}, {"b", 10, 250, 32}};
  for (const std::string_view name : {"mig-two-phase", "cover"}) {
    const Plan plan = testing::policy(name)->plan(worked.input);
    EXPECT_EQ(plan.devices_used(), 1U) << name;
    ASSERT_FALSE(plan.schedulable()) << name;
    EXPECT_EQ(violations(plan, worked.input), "") << name;
  }
}

TEST(MigPolicies, MemoryDecidesWhichInstancesServe) {
  Worked worked = a100s(4);
  worked.input.demands = {{"b", 100, 250, 32}};
  const Plan fits = testing::policy("mig-two-phase")->plan(worked.input);
  EXPECT_TRUE(fits.schedulable());
  for (const PlannedGpulet& gpulet : fits.gpulets)
    EXPECT_GE(gpulet.instance->slices, 2U) << "12 GB do not fit a 1g.10gb";
  worked.profiles->at("gpu").models.at("b").memory_mb = 100000;
  const Plan never = testing::policy("mig-two-phase")->plan(worked.input);
  ASSERT_EQ(never.unserved.size(), 1U);
  EXPECT_TRUE(names(never.unserved[0].reason, "100000 MB"));
}

TEST(MigPolicies, ProcessesShareAnInstanceAndItsRate) {
  Worked worked = a100s(4, 3);
  worked.input.demands = {{"a", 300, 150, 32}};
  const Plan plan = testing::policy("mig-two-phase")->plan(worked.input);
  ASSERT_TRUE(plan.schedulable());
  EXPECT_EQ(violations(plan, worked.input), "");
  std::map<std::pair<DeviceKey, MigInstance>, std::vector<double>> rates;
  for (const PlannedGpulet& gpulet : plan.gpulets)
    rates[{gpulet.device, *gpulet.instance}].push_back(gpulet.assignments[0].rate);
  for (const auto& [place, of_processes] : rates)
    EXPECT_EQ(of_processes, std::vector<double>(3, of_processes.front()));
}

// Two small models fit one 1g together, which MIG-serving gives an instance each.
TEST(MigPolicies, CoverLetsModelsTakeTurnsInAnInstance) {
  Worked worked;
  for (char name = 'a'; name < 'a' + 10; ++name) {
    measure(worked, std::string(1, name), 0.2, 0.05);
    worked.input.demands.push_back({std::string(1, name), 10, 200, 32});
  }
  testing::add_devices(worked, "n0", "gpu", 4);
  testing::divide_by_mig(worked, "h100");
  EXPECT_EQ(testing::policy("mig-two-phase")->plan(worked.input).devices_used(), 2U);
  const Plan covered = testing::policy("cover")->plan(worked.input);
  EXPECT_EQ(covered.devices_used(), 1U);
  EXPECT_EQ(covered.lower_bound, 1U);
  EXPECT_EQ(violations(covered, worked.input), "");
}

TEST(MigPolicies, CoverUsesDevicesOfBothKinds) {
  Worked worked = a100s(2);
  testing::add_devices(worked, "n0", "gpu", 2);
  worked.input.demands = {{"a", 5200, 100, 32}};
  const Plan plan = testing::policy("cover")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(violations(plan, worked.input), "");
  std::set<bool> kinds;
  for (const PlannedGpulet& gpulet : plan.gpulets) kinds.insert(gpulet.instance.has_value());
  EXPECT_EQ(kinds.size(), 2U);
}

TEST(MigPolicies, OthersLeaveMigDevicesAlone) {
  Worked worked = a100s(2);
  worked.input.demands = {{"a", 10, 100, 32}};
  for (const std::string_view name : testing::share_policies()) {
    if (name == "auto" || name == "cover") continue;
    const Plan plan = testing::policy(name)->plan(worked.input);
    ASSERT_EQ(plan.unserved.size(), 1U) << name;
    EXPECT_TRUE(names(plan.unserved[0].reason, "MIG")) << name;
  }
}

// What the plan in force has of the same profile with the same model, stays where it is.
TEST(MigPolicies, KeepWhatRunsWhereItIs) {
  Worked worked = a100s(6);
  worked.input.demands = {{"a", 2500, 150, 32}, {"b", 500, 250, 32}};
  const Plan day = testing::policy("mig-greedy")->plan(worked.input);
  worked.input.current = &day;
  worked.input.demands[0].rate = 2400;
  const Plan evening = testing::policy("mig-greedy")->plan(worked.input);
  ASSERT_TRUE(evening.schedulable());
  std::multiset<std::pair<DeviceKey, MigInstance>> before;
  for (const PlannedGpulet& gpulet : day.gpulets) before.insert({gpulet.device, *gpulet.instance});
  std::size_t kept = 0;
  for (const PlannedGpulet& gpulet : evening.gpulets)
    kept += before.count({gpulet.device, *gpulet.instance});
  EXPECT_GE(kept + 2, evening.gpulets.size());
}

// A device has seven slices, and a 3g only two places. Where a stays in its first instance, the new
// 3g takes the place of the two others.
TEST(MigPlacement, KeepsAsManyRunningInstancesAsALayoutCan) {
  Worked worked;
  for (const char* const model : {"a", "b", "new"}) measure(worked, model, 1, 0.5);
  testing::add_devices(worked, "n0", "gpu", 1);
  testing::divide_by_mig(worked, "a100-80");
  worked.input.demands = {{"a", 10, 500, 32}, {"b", 10, 500, 32}, {"new", 10, 500, 32}};
  Plan current;
  current.gpulets = {gpulet_of(worked, "a", {1, 0}, 1, 5, 500),
                     gpulet_of(worked, "a", {1, 4}, 1, 5, 500),
                     gpulet_of(worked, "b", {1, 5}, 1, 10, 500)};
  worked.input.current = &current;
  PlanContext context(worked.input, Division::by_mig);
  PlanBuilder builder(context);
  const std::uint32_t device = builder.open(0);
  constexpr std::uint32_t k1g = 0, k3g = 2;  // indices of the sizes
  builder.add_gpulet(device, k1g, 0, 10);
  builder.add_gpulet(device, k1g, 1, 10);
  builder.add_gpulet(device, k3g, 2, 10);
  std::vector<std::uint32_t> real = assign_devices(builder);
  const std::vector<std::optional<MigInstance>> expected{MigInstance{1, 4}, MigInstance{1, 5},
                                                         MigInstance{3, 0}};
  EXPECT_EQ(place_instances(builder, &real), expected);
}

TEST(MigPolicies, TwoPhaseTakesASeedAndStopsWhenTold) {
  Worked worked = a100s(60);
  worked.input.demands = {{"a", 20000, 100, 32}, {"b", 9000, 250, 32}};
  schedule::mig::TwoPhaseOptions options;
  std::vector<std::uint32_t> rounds;
  options.seed = 7;
  options.go_on = [&](const schedule::mig::Progress& progress) {
    rounds.push_back(progress.round);
    return rounds.size() < 2;
  };
  const Plan plan = make_mig_two_phase(options)->plan(worked.input);
  EXPECT_EQ(violations(plan, worked.input), "");
  EXPECT_LE(rounds.size(), 2U);
}

// Told apart from the layouts that the optimiser works with: the memory slices of every device as
// bits.
TEST(Stages, WithoutMigThePlanIsOne) {
  Worked worked;
  measure(worked, "a", 1, 0.5);
  testing::add_devices(worked, "n0", "gpu", 2);
  worked.input.demands.push_back({"a", 100, 100, 32});
  const Plan plan = make_policy("elastic").value()->plan(worked.input);
  ASSERT_FALSE(plan.gpulets.empty());
  const auto staged = stage_plan({}, plan, worked.input.cluster);
  ASSERT_TRUE(staged.ok()) << staged.status().message();
  EXPECT_EQ(staged.value().plans, std::vector<Plan>{plan});
}

RC_GTEST_PROP(MigPolicies, TakeNoMemorySliceTwice, ()) {
  const Worked worked = testing::any_input();
  for (const std::string_view name : mig_policies()) {
    std::map<DeviceKey, std::uint32_t> taken;
    std::set<std::pair<DeviceKey, MigInstance>> seen;
    for (const PlannedGpulet& gpulet : testing::policy(name)->plan(worked.input).gpulets) {
      if (!gpulet.instance || !seen.insert({gpulet.device, *gpulet.instance}).second) continue;
      const bool seven = gpulet.instance->slices == 7 || gpulet.instance->slices == 3;
      const std::uint32_t memory = gpulet.instance->slices + (seven ? 1U : 0U);
      const std::uint32_t bits = ((1U << memory) - 1U) << gpulet.instance->start;
      RC_ASSERT((taken[gpulet.device] & bits) == 0U);
      taken[gpulet.device] |= bits;
    }
  }
}

}  // namespace
}  // namespace gpulet::schedule
