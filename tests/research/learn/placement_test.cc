#include "research/learn/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "gpulet/research/research.h"
#include "gpulet/schedule/check.h"
#include "research/learn/learned_policy.h"
#include "tests/research/learn/worked_placement.h"
#include "tests/support/names.h"

namespace gpulet::learn {
namespace {

using schedule::Plan;
using schedule::PlanInput;
using schedule::testing::Worked;
using support::names;
using testing::drawn_policy;
using testing::worked_placement;

void expect_invalid(const Status& status, const std::string& what) {
  EXPECT_EQ(status.code(), StatusCode::invalid);
  EXPECT_TRUE(names(status, what));
}

TEST(PlacementTask, OrdersModelsByWork) {
  const Worked worked = worked_placement();
  const auto task = task_of(worked.input);
  ASSERT_TRUE(task.ok()) << task.status().message();
  std::vector<std::string> names;
  for (const TaskModel& model : task.value().models) names.push_back(model.name);
  // 400/s of 1.2 ms, 100/s of 3 ms, 20/s of 7 ms.
  EXPECT_EQ(names, (std::vector<std::string>{"small", "middle", "large"}));
  EXPECT_EQ(task.value().observation_size(), 3U + 2 * 3U);
  EXPECT_EQ(task.value().places(), 1U + 3 * 6U);
}

TEST(PlacementTask, NeedsRatesProfilesAndDevices) {
  Worked worked = worked_placement();
  worked.input.demands[1].rate = 0;
  expect_invalid(task_of(worked.input).status(), "'middle'");
  worked = worked_placement();
  worked.input.demands.push_back({"unknown", 1, 100, 32});
  expect_invalid(task_of(worked.input).status(), "'unknown'");
  worked = worked_placement();
  worked.input.cluster.devices.clear();
  expect_invalid(task_of(worked.input).status(), "devices");
}

TEST(PlacementTask, FitsSubsetsOnly) {
  const Worked worked = worked_placement();
  const PlacementTask task = task_of(worked.input).value();
  PlanInput input = worked.input;
  EXPECT_TRUE(fits(task, input).ok());
  input.demands[0].rate = 7;
  input.demands.pop_back();
  input.cluster.devices.pop_back();
  EXPECT_TRUE(fits(task, input).ok());

  input.demands[0].slo_ms = 41;
  expect_invalid(fits(task, input), "'small'");
  input = worked.input;
  input.demands[0].name = "other";
  expect_invalid(fits(task, input), "'other'");
  input = worked.input;
  input.cluster.devices[0].cores = 4;
  EXPECT_TRUE(fits(task, input).ok());
  input.cluster.devices[0].sizes.pop_back();
  expect_invalid(fits(task, input), "n0/0");
  input = worked.input;
  input.cluster.devices[0].key.node = "n7";
  expect_invalid(fits(task, input), "n7/0");
}

TEST(Observation, HasMemoryThenRatesAndQueues) {
  Worked worked = worked_placement();
  const PlacementTask task = task_of(worked.input).value();
  Plan current;
  schedule::PlannedGpulet& gpulet = current.gpulets.emplace_back();
  gpulet.device = {"n0", 1};
  gpulet.assignments = {{"middle", 1, 1, 1, 1, 1}};
  worked.input.current = &current;
  worked.input.demands = {{"small", 100, 40, 32, 8}, {"large", 20, 200, 32}};
  EXPECT_EQ(observe(task, worked.input),
            (std::vector<float>{0, 0.25F, 0, 0.25F, 0.5F, 0, 0, 1, 0}));
}

// The allowed sizes of the first device; choice 0 is no placement.
std::vector<std::uint8_t> sizes_of_the_first(const std::vector<std::uint8_t>& allowed) {
  return {allowed.begin() + 1, allowed.begin() + 7};
}

TEST(PlacementRules, RuleOutCandidatesThatCannotServe) {
  Worked worked = worked_placement();
  worked.input.demands[0].rate = 0;  // small: no demand
  const PlacementTask task = task_of(worked_placement().input).value();
  const PlacementRules rules(task, worked.input);
  const std::vector<float> seen = observe(task, worked.input);
  std::vector<std::uint8_t> allowed(task.places());
  rules.allow(seen, 0, {}, allowed);
  EXPECT_EQ(std::count(allowed.begin(), allowed.end(), 1), 1);
  EXPECT_EQ(allowed[0], 1);
  // The slow device, whose candidates are the last six, has no profile of `large`. The two fast
  // ones are equal and empty.
  const std::vector<std::uint32_t> before{0, 0};
  rules.allow(seen, 2, before, allowed);
  EXPECT_EQ(sizes_of_the_first(allowed), std::vector<std::uint8_t>(6, 1));
  EXPECT_EQ(std::count(allowed.begin() + 7, allowed.end() - 6, 1), 0);
  EXPECT_EQ(std::count(allowed.end() - 6, allowed.end(), 1), 0);
  EXPECT_EQ(allowed[0], 0);
  // `middle` on the whole first device leaves the second one.
  rules.allow(seen, 2, std::vector<std::uint32_t>{0, 6}, allowed);
  EXPECT_EQ(std::count(allowed.begin(), allowed.end(), 1), 6);
}

// n0/0 and n0/1 are equal: the second is open once the first has a model.
TEST(PlacementRules, OpenOneOfEqualEmptyDevices) {
  Worked worked = worked_placement();
  const PlacementTask task = task_of(worked.input).value();
  const std::vector<float> seen = observe(task, worked.input);
  std::vector<std::uint8_t> allowed(task.places());
  const auto sizes_of_the_second = [&] {
    return std::count(allowed.begin() + 7, allowed.begin() + 13, 1);
  };
  const PlacementRules rules(task, worked.input);
  rules.allow(seen, 1, std::vector<std::uint32_t>{0}, allowed);
  EXPECT_EQ(sizes_of_the_second(), 0);
  rules.allow(seen, 1, std::vector<std::uint32_t>{1}, allowed);
  EXPECT_GT(sizes_of_the_second(), 0);

  worked.input.cluster.devices[0].memory_mb = 1e6;  // no longer equal
  const PlacementTask other = task_of(worked.input).value();
  const PlacementRules rules_of_other(other, worked.input);
  rules_of_other.allow(seen, 1, std::vector<std::uint32_t>{0}, allowed);
  EXPECT_GT(sizes_of_the_second(), 0);
}

TEST(PlacementRules, RespectMaxDevices) {
  Worked worked = worked_placement();
  worked.input.options.max_devices = 1;
  const PlacementTask task = task_of(worked.input).value();
  const PlacementRules rules(task, worked.input);
  const std::vector<float> seen = observe(task, worked.input);
  std::vector<std::uint8_t> allowed(task.places());
  rules.allow(seen, 1, std::vector<std::uint32_t>{1}, allowed);  // `small` has a fifth of the first
  EXPECT_EQ(std::count(allowed.begin() + 1, allowed.begin() + 7, 1), 5);
  EXPECT_EQ(std::count(allowed.begin() + 7, allowed.end(), 1), 0);
}

TEST(PlacementRules, LeaveCapacityForLaterModels) {
  Worked worked = worked_placement();
  worked.input.options.max_devices = 1;
  for (schedule::Device& device : worked.input.cluster.devices) {
    device.max_partitions = 3;
    device.memory_mb = 9000;  // all three fit
  }
  const PlacementTask task = task_of(worked.input).value();
  const PlacementRules rules(task, worked.input);
  std::vector<float> seen = observe(task, worked.input);
  std::vector<std::uint8_t> allowed(task.places());
  const std::vector<std::uint32_t> before{1};  // `small` has a fifth of the first
  rules.allow(seen, 1, before, allowed);
  EXPECT_EQ(sizes_of_the_first(allowed), (std::vector<std::uint8_t>{1, 1, 1, 1, 0, 0}));
  seen[7] = 0;  // no demand for `large`
  rules.allow(seen, 1, before, allowed);
  EXPECT_EQ(sizes_of_the_first(allowed), (std::vector<std::uint8_t>{1, 1, 1, 1, 1, 0}));
}

TEST(PlacementRules, AllowWhatHoldsTheRateOrElseTheMaximum) {
  Worked worked = worked_placement();
  const PlacementTask task = task_of(worked.input).value();
  const PlacementRules rules(task, worked.input);
  std::vector<float> seen = observe(task, worked.input);
  std::vector<std::uint8_t> allowed(task.places());
  rules.allow(seen, 0, {}, allowed);
  const auto many = std::count(allowed.begin(), allowed.end(), 1);
  seen[3] = 4;  // four times the rate of `small`
  rules.allow(seen, 0, {}, allowed);
  EXPECT_LT(std::count(allowed.begin(), allowed.end(), 1), many);
  EXPECT_EQ(sizes_of_the_first(allowed).back(), 1);
  seen[3] = 1000;
  rules.allow(seen, 0, {}, allowed);
  EXPECT_EQ(sizes_of_the_first(allowed), (std::vector<std::uint8_t>{0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(std::count(allowed.begin(), allowed.end(), 1), 1) << "a fast device, whole";
}

// For any network, any rates and any missing devices, the plan keeps every rule.
RC_GTEST_PROP(InssPolicy, KeepsTheRulesForAnyNetwork, ()) {
  Worked worked = worked_placement();
  const LearnedPolicy learned =
      drawn_policy(worked.input, *rc::gen::inRange<std::uint64_t>(0, 1000));
  for (schedule::ModelDemand& demand : worked.input.demands) {
    demand.rate *= *rc::gen::inRange(0, 5) / 2.0;
    demand.queued = *rc::gen::inRange(0, 100);
  }
  worked.input.options.headroom =
      *rc::gen::element(schedule::Headroom::none, schedule::Headroom::poisson);
  if (*rc::gen::arbitrary<bool>()) worked.input.options.max_devices = *rc::gen::inRange(1U, 4U);
  if (*rc::gen::arbitrary<bool>()) worked.input.cluster.devices.pop_back();
  const auto policy = make_inss_policy(learned);
  const Plan first = policy->plan(worked.input);
  RC_ASSERT(schedule::testing::violations(first, worked.input) == "");
  RC_ASSERT(first.policy == "inss");
  RC_ASSERT(first == policy->plan(worked.input));
  for (const std::string& note : first.notes) RC_ASSERT(!support::has_whole(note, "cover"));
}

TEST(InssPolicy, KeepsAPlacementThatHoldsNewRates) {
  Worked worked = worked_placement();
  for (schedule::ModelDemand& demand : worked.input.demands) demand.rate /= 4;
  const auto policy = make_inss_policy(drawn_policy(worked_placement().input, 3));
  const Plan first = policy->plan(worked.input);
  ASSERT_TRUE(first.schedulable());
  worked.input.current = &first;
  for (schedule::ModelDemand& demand : worked.input.demands) demand.rate *= 0.9;
  const Plan second = policy->plan(worked.input);
  ASSERT_EQ(first.gpulets.size(), second.gpulets.size());
  for (std::size_t at = 0; at < first.gpulets.size(); ++at) {
    EXPECT_EQ(first.gpulets[at].device, second.gpulets[at].device);
    EXPECT_EQ(first.gpulets[at].size, second.gpulets[at].size);
  }
  EXPECT_NE(first, second);
}

TEST(InssPolicy, FallsBackToCoverForAnotherTask) {
  Worked worked = worked_placement();
  const auto policy = make_inss_policy(drawn_policy(worked.input, 1));
  EXPECT_TRUE(policy->fits(worked.input).ok());
  worked.input.demands[0].slo_ms = 50;
  expect_invalid(policy->fits(worked.input), "'small'");
  const Plan plan = policy->plan(worked.input);
  EXPECT_EQ(schedule::testing::violations(plan, worked.input), "");
  EXPECT_TRUE(plan.schedulable());
  ASSERT_FALSE(plan.notes.empty());
  EXPECT_TRUE(names(plan.notes.front(), "'small'"));
  EXPECT_TRUE(schedule::make_policy("elastic").value()->fits(worked.input).ok());
}

TEST(InssPolicy, IsMadeFromItsFileName) {
  const schedule::PolicyTable policies = research::policies();
  EXPECT_EQ(policies.make("elastic").value()->name(), "elastic");
  expect_invalid(policies.make("inss").status(), "inss:FILE");
  EXPECT_EQ(policies.make("inss:/nowhere/some.policy").status().code(), StatusCode::not_found);
  const auto unknown = policies.make("no-such");
  EXPECT_EQ(unknown.status().code(), StatusCode::not_found);
  EXPECT_TRUE(names(unknown.status(), "inss:FILE"));

  const auto file = std::filesystem::path(::testing::TempDir()) / "placement_test.policy";
  ASSERT_TRUE(write_policy(drawn_policy(worked_placement().input, 1), file).ok());
  const auto made = policies.make("inss:" + file.string());
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made.value()->name(), "inss");
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace gpulet::learn
