#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/schedule/check.h"
#include "schedule/cover/relaxation.h"
#include "tests/schedule/generated.h"
#include "tests/schedule/reference_case.h"

namespace gpulet::schedule {
namespace {

using testing::any_input;
using testing::policy;
using testing::violations;
using testing::Worked;

// Like any_input(), but with rates that can be served: scaled from what one policy serves of the
// original rates.
Worked input_near_the_limit() {
  Worked worked = any_input();
  const double part = *rc::gen::inRange(50, 120) / 100.0;
  const Plan most = policy("elastic")->plan(worked.input);
  for (ModelDemand& demand : worked.input.demands) {
    demand.rate = testing::served(most, demand.name) * part;
  }
  return worked;
}

void expect_no_worse_than_others(const Worked& worked) {
  const Plan cover = policy("cover")->plan(worked.input);
  RC_LOG() << violations(cover, worked.input);
  RC_ASSERT(check(cover, worked.input).empty());
  RC_ASSERT(cover.lower_bound.has_value());
  if (cover.schedulable()) RC_ASSERT(*cover.lower_bound <= cover.devices_used());
  for (const std::string_view name : testing::share_policies()) {
    if (name == "cover") continue;
    const Plan other = policy(name)->plan(worked.input);
    if (!other.schedulable()) continue;
    RC_LOG() << name << " uses " << other.devices_used();
    RC_ASSERT(cover.schedulable());
    RC_ASSERT(cover.devices_used() <= other.devices_used());
    RC_ASSERT(*cover.lower_bound <= other.devices_used());
  }
}

RC_GTEST_PROP(Cover, IsNoWorseThanAnotherPolicy, ()) { expect_no_worse_than_others(any_input()); }

RC_GTEST_PROP(Cover, IsNoWorseThanAnotherPolicyNearTheLimit, ()) {
  expect_no_worse_than_others(input_near_the_limit());
}

RC_GTEST_PROP(Cover, IsNoWorseThanAnotherPolicyWithoutHeadroom, ()) {
  Worked worked = input_near_the_limit();
  worked.input.options.headroom = Headroom::none;
  expect_no_worse_than_others(worked);
}

// Every two models slow each other down, so that the bound counts on it.
void interfere_everywhere(Worked& worked) {
  worked.interference = std::make_unique<profile::InterferenceSet>();
  for (auto& [type, profile] : *worked.profiles) {
    profile.pairs.clear();
    for (const auto& [model, measured] : profile.models) {
      for (const auto& [other, beside] : profile.models) {
        const profile::LatencySample& cell = measured.latency.samples().front();
        const profile::LatencySample& other_cell = beside.latency.samples().front();
        const double slowdown = *rc::gen::inRange(100, 300) / 100.0;
        profile.pairs.push_back({model, cell.batch, cell.share, other, other_cell.batch,
                                 other_cell.share, cell.latency_ms * slowdown});
      }
    }
    if (profile.pairs.empty()) continue;
    worked.interference->emplace(
        type,
        profile::InterferenceModel::create(profile, profile::InterferenceKind::measured).value());
  }
  worked.input.interference = worked.interference.get();
}

RC_GTEST_PROP(Cover, IsNoWorseThanAnotherPolicyWhereAllInterfere, ()) {
  Worked worked = input_near_the_limit();
  interfere_everywhere(worked);
  worked.input.options.headroom = *rc::gen::element(Headroom::none, Headroom::poisson);
  expect_no_worse_than_others(worked);
}

// A batch takes 10 ms on any share. Two halves of a device would serve twice as much as a whole
// one, if they did not slow each other down three times.
TEST(Cover, BoundsTheDevicesWithTheSlowdownOfNeighbours) {
  Worked worked;
  worked.input.options.headroom = Headroom::none;
  worked.input.options.margin = 1;
  std::vector<profile::LatencySample> samples;
  for (const int percent : {50, 100}) {
    for (const std::uint32_t batch : {1U, 32U}) samples.push_back({batch, Share{percent}, 10});
  }
  profile::Profile& profile = (*worked.profiles)["gpu"];
  profile.name = "gpu";
  profile.models.emplace(
      "net", profile::ModelProfile{profile::LatencyTable::create(samples).value(), {}, {}});
  testing::add_devices(worked, "n0", "gpu", 6);
  for (Device& device : worked.input.cluster.devices) device.sizes = {{50}, {100}};
  worked.input.demands = {{"net", 3.5 * 3200, 100, 32}};
  const Plan alone = policy("cover")->plan(worked.input);
  EXPECT_EQ(alone.lower_bound, 2U);
  EXPECT_EQ(alone.devices_used(), 2U);
  for (const std::uint32_t batch : {1U, 32U})
    profile.pairs.push_back({"net", batch, Share{50}, "net", 1, Share{50}, 30});
  worked.interference = std::make_unique<profile::InterferenceSet>(
      profile::interference_of(*worked.profiles, profile::InterferenceKind::measured).value());
  worked.input.interference = worked.interference.get();
  const Plan beside = policy("cover")->plan(worked.input);
  EXPECT_EQ(beside.lower_bound, 4U);
  EXPECT_EQ(beside.devices_used(), 4U);
}

// One model with 3.5 times the rate of a device: 32 requests in 18 ms, 1778 per second, and no
// division serves more.
Plan plan_for_three_and_a_half(std::uint32_t devices) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"net", 2, 0.5}});
  testing::add_devices(worked, "n0", "gpu", devices);
  worked.input.demands = {{"net", 3.5 * 32 / 0.018, 40, 32}};
  return policy("cover")->plan(worked.input);
}

TEST(Cover, ProvesThatItsPlanForOneModelIsOptimal) {
  const Plan plan = plan_for_three_and_a_half(6);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(plan.devices_used(), 4U);
  EXPECT_EQ(plan.lower_bound, 4U);
}

TEST(Cover, ProvesThatADemandIsTooMuchForTheCluster) {
  const Plan plan = plan_for_three_and_a_half(3);
  EXPECT_FALSE(plan.schedulable());
  EXPECT_EQ(plan.devices_used(), 3U);
  EXPECT_EQ(plan.lower_bound, 4U);
}

// Requests wait at most one round: a stream of one request per second keeps a device busy for at
// least 2.5 of 37.5 ms, although large batches would cost next to nothing.
TEST(Cover, CountsTheTimeOfSlowStreams) {
  Worked worked;
  worked.input.options.headroom = Headroom::none;
  std::vector<testing::ModelLatency> models;
  for (int index = 0; index < 40; ++index) {
    models.push_back({"net" + std::to_string(index), 2, 0.5});
    worked.input.demands.push_back({models.back().name, 1, 40, 32});
  }
  testing::add_profile(worked, "gpu", models);
  testing::add_devices(worked, "n0", "gpu", 10);
  const Plan plan = policy("cover")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(violations(plan, worked.input), "");
  EXPECT_EQ(plan.lower_bound, 3U);
  EXPECT_EQ(plan.devices_used(), 3U);
}

// There are few devices of the fast type: the slow ones must serve the rest.
TEST(Cover, RespectsTheNumberOfDevicesOfEachType) {
  Worked worked;
  worked.input.options.headroom = Headroom::none;
  testing::add_profile(worked, "fast", {{"net", 2, 0.5}});
  testing::add_profile(worked, "slow", {{"net", 2, 1.0}});
  testing::add_devices(worked, "n0", "fast", 1);
  testing::add_devices(worked, "n1", "slow", 4);
  worked.input.demands = {{"net", 3000, 80, 32}};
  const Plan plan = policy("cover")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(plan.devices_used(), 3U);
  EXPECT_EQ(plan.lower_bound, 3U);
}

// Devices that are used whole.
void forbid_division(Worked& worked) {
  for (Device& device : worked.input.cluster.devices) {
    device.sizes = {{100}};
    device.max_partitions = 1;
  }
}

// A fast device does the work of three slow ones for b and of four for c. With two fast ones for c
// and the most of b, everything takes 7.8 devices. The other policies give each rest a device.
TEST(Cover, GivesScarceDevicesToTheModelsThatGainMost) {
  Worked worked;
  testing::add_profile(worked, "fast",
                       {{"a", 0.1, 0.5}, {"b", 0.1 / 3, 0.5 / 3}, {"c", 0.1 / 4, 0.5 / 4}});
  testing::add_profile(worked, "slow", {{"a", 0.1, 0.5}, {"b", 0.1, 0.5}, {"c", 0.1, 0.5}});
  testing::add_devices(worked, "n0", "fast", 2);
  testing::add_devices(worked, "n1", "slow", 20);
  forbid_division(worked);
  constexpr double kSlowDevice = 32 / 0.0161;
  worked.input.demands = {{"a", 0.4 * kSlowDevice, 80, 32},
                          {"b", 3 * 2.6 * kSlowDevice, 80, 32},
                          {"c", 4 * 1.2 * kSlowDevice, 80, 32}};
  const Plan plan = policy("cover")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(violations(plan, worked.input), "");
  EXPECT_EQ(plan.lower_bound, 8U);
  EXPECT_EQ(plan.devices_used(), 8U);
}

// Each model keeps 0.58 of a device busy, so no two fit on one: ten devices suffice for sixteen
// models only where devices are filled with parts of models.
TEST(Cover, DividesManyModelsBetweenDevices) {
  Worked worked;
  std::vector<testing::ModelLatency> models;
  for (int index = 0; index < 16; ++index) {
    models.push_back({"net" + std::to_string(index), 0.1, 0.5});
    worked.input.demands.push_back({models.back().name, 0.58 * 32 / 0.0161, 40, 32});
  }
  testing::add_profile(worked, "gpu", models);
  testing::add_devices(worked, "n0", "gpu", 16);
  forbid_division(worked);
  const Plan plan = policy("cover")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(violations(plan, worked.input), "");
  EXPECT_EQ(plan.lower_bound, 10U);
  EXPECT_EQ(plan.devices_used(), 10U);
}

TEST(Cover, LeavesAModelThatNoDeviceServesOutOfTheBound) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"late", 100, 1}, {"net", 2, 0.5}});
  testing::add_devices(worked, "n0", "gpu", 6);
  worked.input.demands = {{"late", 10, 40, 32}, {"net", 3.5 * 32 / 0.018, 40, 32}};
  const Plan plan = policy("cover")->plan(worked.input);
  ASSERT_EQ(plan.unserved.size(), 1U);
  EXPECT_EQ(plan.unserved.front().model, "late");
  EXPECT_EQ(plan.devices_used(), 4U);
  EXPECT_EQ(plan.lower_bound, 4U);
}

class CoverOfReferenceCase : public ::testing::Test {
 protected:
  static std::vector<bool> schedulable(Worked& worked, std::string_view name, double scale) {
    const auto planner = policy(name);
    std::vector<bool> rows;
    for (int scenario = 1; scenario < testing::kScenarios; ++scenario) {
      testing::set_scenario(worked, scenario, scale);
      const Plan plan = planner->plan(worked.input);
      EXPECT_EQ(violations(plan, worked.input), "") << name << " scenario " << scenario;
      rows.push_back(plan.schedulable());
    }
    return rows;
  }
};

// 1015 and 920 is what `ideal` schedules at scales 4 and 5.
TEST_F(CoverOfReferenceCase, IsNoLessThanTheIdealAndMonotonicInTheLoad) {
  Worked worked = testing::reference_case();
  for (const auto& [scale, ideal] : {std::pair{4.0, 1015}, std::pair{5.0, 920}}) {
    const std::vector<bool> rows = schedulable(worked, "cover", scale);
    const auto count = std::count(rows.begin(), rows.end(), true);
    RecordProperty("cover_" + std::to_string(static_cast<int>(scale)), std::to_string(count));
    EXPECT_GE(count, ideal) << "scale " << scale;
    EXPECT_EQ(testing::count_non_monotonic(rows), 0U) << "scale " << scale;
  }
}

class CoverOfReferenceCaseWith : public CoverOfReferenceCase,
                                 public ::testing::WithParamInterface<profile::InterferenceKind> {};

// Whole devices are among its choices, and a model alone on a device is not slowed down.
TEST_P(CoverOfReferenceCaseWith, SchedulesWhatSbpDoes) {
  Worked worked = testing::reference_case(GetParam());
  const std::vector<bool> whole = schedulable(worked, "sbp", 3.3);
  const std::vector<bool> covered = schedulable(worked, "cover", 3.3);
  for (std::size_t row = 0; row < whole.size(); ++row) {
    EXPECT_TRUE(covered[row] || !whole[row]) << "scenario " << row + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Interference, CoverOfReferenceCaseWith,
                         ::testing::Values(profile::InterferenceKind::linear,
                                           profile::InterferenceKind::learned),
                         [](const auto& instance) {
                           return std::string(profile::to_string(instance.param));
                         });

TEST(Relaxation, AModelThatNoSizeServesCostsNothing) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"late", 100, 1}, {"net", 2, 0.5}});
  testing::add_devices(worked, "n0", "gpu", 1);
  worked.input.demands = {{"late", 10, 40, 32}, {"net", 10, 40, 32}};
  const PlanContext context(worked.input);
  const Relaxation relaxation(context);
  EXPECT_EQ(relaxation.cost(0, 10), 0);
  EXPECT_GT(relaxation.cost(1, 10), 0);
  EXPECT_EQ(relaxation.cost(1, 0), 0);
}

// Before price(), a 1g costs 0.14 of a device, a 2g 0.28, a 3g 0.42, a 4g 0.57 and a 7g 1.
TEST(Relaxation, TheRestOfADeviceUnderMigCostsWhatTheLayoutsLeave) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"net", 2, 0.5}});
  testing::add_devices(worked, "n0", "gpu", 1);
  testing::divide_by_mig(worked, "a100-80");
  worked.input.demands = {{"net", 1, 400, 32}};
  const PlanContext context(worked.input, Division::by_mig);
  const Relaxation relaxation(context);
  const auto rest = [&](const std::vector<std::uint32_t>& taken) {
    return relaxation.price_beside(0, taken);
  };
  EXPECT_NEAR(rest({0, 0, 0, 0, 0}), 1, 1e-12);
  EXPECT_NEAR(rest({1, 0, 0, 0, 0}), 0.85, 1e-12) << "a 4g and a 2g";
  EXPECT_NEAR(rest({0, 0, 1, 0, 0}), 0.57, 1e-12) << "a 4g";
  EXPECT_NEAR(rest({5, 1, 0, 0, 0}), 0, 1e-12);
  EXPECT_NEAR(rest({7, 0, 0, 0, 0}), 0, 1e-12);
  EXPECT_NEAR(rest({8, 0, 0, 0, 0}), 0, 1e-12) << "no layout has eight";
}

TEST(LinearProgram, PricesRowsAsColumnsCome) {
  LinearProgram program(std::vector<double>{2, 3});
  const std::vector<LinearProgram::Entry> first{{0, 1}};
  const std::vector<LinearProgram::Entry> second{{1, 1}};
  const std::vector<LinearProgram::Entry> both{{0, 1}, {1, 1}};
  program.add_column(1, first);
  EXPECT_FALSE(program.solve());
  program.add_column(1, second);
  ASSERT_TRUE(program.solve());
  EXPECT_EQ(program.prices(), (std::vector<double>{1, 1}));
  program.add_column(1, both);
  ASSERT_TRUE(program.solve());
  EXPECT_NEAR(2 * program.prices()[0] + 3 * program.prices()[1], 3, 1e-9);
}

}  // namespace
}  // namespace gpulet::schedule
