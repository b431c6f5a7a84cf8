// Properties of every policy for every input.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "gpulet/schedule/check.h"
#include "gpulet/schedule/reconcile.h"
#include "tests/schedule/generated.h"

namespace gpulet::schedule {
namespace {

using testing::any_input;
using testing::policy;
using testing::served;
using testing::violations;
using testing::Worked;

RC_GTEST_PROP(AnyPolicy, MakesPlansThatKeepTheRules, ()) {
  const Worked worked = *rc::gen::inRange(0, 3) == 0 ? testing::any_mixed_input() : any_input();
  RC_ASSERT(validate(worked.input).ok());
  for (const std::string_view name : testing::policy_names()) {
    const Plan plan = policy(name)->plan(worked.input);
    RC_LOG() << name << "\n" << violations(plan, worked.input);
    RC_ASSERT(check(plan, worked.input).empty());
    RC_ASSERT(plan.policy == name);
    for (const Unserved& unserved : plan.unserved) RC_ASSERT(!unserved.reason.empty());
  }
}

// More than a thousand models: sanitizers would take a minute (scripts/test).
TEST(ManyModels, GetNoGpuletWithMoreOfThemThanTheProtocolAllows) {
  Worked worked;
  std::vector<testing::ModelLatency> models;
  for (std::size_t i = 0; i < kMostModelsOfGpulet + 100; ++i) {
    models.push_back({"m" + std::to_string(i), 0, 0.001});
    worked.input.demands.push_back({models.back().name, 0.01, 10'000, 1});
  }
  testing::add_profile(worked, "gpu", models);
  testing::add_devices(worked, "n0", "gpu", 2);
  for (const std::string_view name : testing::share_policies()) {
    const Plan plan = policy(name)->plan(worked.input);
    EXPECT_EQ(violations(plan, worked.input), "") << name;
  }
}

// The planner and check() bound a cycle differently where a model's SLO allows much larger batches
// than the plan gives it.
TEST(AnyPolicy, KeepsTheRulesBesideAModelThatCouldHaveLargerBatches) {
  const Worked worked = testing::generated(765651595829287, 8);
  for (const std::string_view name : testing::policy_names())
    EXPECT_EQ(violations(policy(name)->plan(worked.input), worked.input), "") << name;
}

// A crash ends the process, so a crashing model must not share one.
RC_GTEST_PROP(AnyPolicy, GivesModelsThatMustBeAloneGpuletsOfTheirOwn, ()) {
  Worked worked = any_input();
  for (ModelDemand& demand : worked.input.demands) demand.alone = *rc::gen::inRange(0, 3) == 0;
  for (const std::string_view name : {"elastic", "elastic-preprint", "cover", "sbp"}) {
    worked.input.current = nullptr;
    const Plan plan = policy(name)->plan(worked.input);
    RC_LOG() << name << "\n" << violations(plan, worked.input);
    RC_ASSERT(check(plan, worked.input).empty());
  }
}

RC_GTEST_PROP(AnyPolicy, DoesNotDependOnTheOrderOfItsInput, ()) {
  Worked worked = any_input();
  for (const std::string_view name : testing::policy_names()) {
    const Plan plan = policy(name)->plan(worked.input);
    std::reverse(worked.input.demands.begin(), worked.input.demands.end());
    std::rotate(worked.input.cluster.devices.begin(),
                worked.input.cluster.devices.begin() +
                    static_cast<std::ptrdiff_t>(worked.input.cluster.devices.size() / 2),
                worked.input.cluster.devices.end());
    RC_ASSERT(policy(name)->plan(worked.input) == plan);
  }
}

// The policies that change a plan in force although nothing else changed.
std::vector<std::string> unstable_policies(Worked worked) {
  std::vector<std::string> unstable;
  for (const std::string_view name : testing::policy_names()) {
    worked.input.current = nullptr;
    const Plan plan = policy(name)->plan(worked.input);
    worked.input.current = &plan;
    const Plan again = policy(name)->plan(worked.input);
    // Where the devices are too few, a plan that serves more may follow.
    if (again != plan && again.unserved_rate() >= plan.unserved_rate()) {
      unstable.emplace_back(name);
      RC_LOG() << name << "\n" << testing::differences(plan, again);
    }
  }
  return unstable;
}

RC_GTEST_PROP(AnyPolicy, RepeatsThePlanInForceWhereNothingChanged, ()) {
  RC_ASSERT(unstable_policies(any_input()).empty());
}

// Starting from the plan in force, cover computes the same rates by other sums.
TEST(AnyPolicy, RepeatsThePlanInForceToTheLastBit) {
  EXPECT_EQ(unstable_policies(testing::generated(194529047294, 8)), std::vector<std::string>());
}

// A change of plan has to pay.
RC_GTEST_PROP(AnyPolicy, LeavesAPlanInForceOnlyForABetterOne, ()) {
  Worked worked = any_input();
  for (const std::string_view name :
       {"cover", "elastic", "elastic-preprint", "greedy-best-fit", "sbp", "static-equal"}) {
    worked.input.current = nullptr;
    Plan plan = policy(name)->plan(worked.input);
    // The same plan on other devices of the type.
    if (plan.gpulets.size() > 1 && plan.gpulets.front().device != plan.gpulets.back().device) {
      std::swap(plan.gpulets.front().device, plan.gpulets.back().device);
      std::stable_sort(plan.gpulets.begin(), plan.gpulets.end(), in_plan_order);
    }
    if (!check(plan, worked.input).empty()) continue;
    worked.input.current = &plan;
    const Plan again = policy(name)->plan(worked.input);
    RC_LOG() << name << "\n" << testing::differences(plan, again);
    RC_ASSERT(again.gpulets == plan.gpulets || again.unserved_rate() < plan.unserved_rate() ||
              again.devices_used() < plan.devices_used());
  }
}

// Each case tries a quarter of the policies: it makes three plans with each.
RC_GTEST_PROP(AnyPolicy, StaysCorrectWithAnyPlanInForce, ()) {
  constexpr std::size_t kParts = 4;
  Worked worked = any_input();
  const auto scale = *rc::gen::inRange(0, 300);
  const std::vector<std::string_view> names = testing::policy_names();
  for (auto at = *rc::gen::inRange<std::size_t>(0, kParts); at < names.size(); at += kParts) {
    const std::string_view name = names[at];
    worked.input.current = nullptr;
    const Plan before = policy(name)->plan(worked.input);
    Worked after = worked.input.demands.empty() ? Worked() : any_input();
    after.input.current = &before;
    const Plan plan = policy(name)->plan(after.input);
    RC_LOG() << name << "\n" << violations(plan, after.input);
    RC_ASSERT(check(plan, after.input).empty());
    for (ModelDemand& demand : worked.input.demands) demand.rate *= scale / 100.0;
    worked.input.current = &before;
    RC_ASSERT(check(policy(name)->plan(worked.input), worked.input).empty());
  }
}

RC_GTEST_PROP(AnyPolicy, ServesASingleModelNoLessOnMoreDevices, ()) {
  const auto devices = *rc::gen::inRange<std::uint32_t>(0, 8);
  const double rate = *rc::gen::inRange(1, 20000);
  Worked worked;
  testing::add_profile(worked, "gpu", {{"net", 1, 0.5}});
  testing::add_devices(worked, "n0", "gpu", devices);
  worked.input.demands = {{"net", rate, 40, 32}};
  for (const std::string_view name : testing::share_policies()) {
    Worked larger;
    testing::add_profile(larger, "gpu", {{"net", 1, 0.5}});
    testing::add_devices(larger, "n0", "gpu", devices + 1);
    larger.input.demands = worked.input.demands;
    const double before = served(policy(name)->plan(worked.input), "net");
    const double after = served(policy(name)->plan(larger.input), "net");
    RC_ASSERT(after >= before * (1 - kCheckTolerance));
  }
}

RC_GTEST_PROP(Reconcile, NeedsNoStepForAPlanThatRuns, ()) {
  const Worked worked = any_input();
  for (const std::string_view name : testing::policy_names()) {
    const Plan plan = policy(name)->plan(worked.input);
    std::vector<RunningGpulet> running;
    for (const PlannedGpulet& planned : plan.gpulets) {
      RunningGpulet& gpulet = running.emplace_back();
      gpulet.id = GpuletId{100 - running.size()};
      gpulet.device = planned.device;
      gpulet.size = planned.size;
      gpulet.instance = planned.instance;
      for (const Assignment& assignment : planned.assignments) {
        gpulet.models.push_back({assignment.model, assignment.batch});
      }
    }
    const Steps steps = reconcile(running, plan);
    RC_ASSERT(steps.empty());
    RC_ASSERT(steps.keep.size() == plan.gpulets.size());
  }
}

TEST(AnyPolicy, ServesASingleSlowRequestStream) {
  for (const std::string_view name : testing::share_policies()) {
    Worked worked;
    testing::add_profile(worked, "gpu", {{"net", 1, 0.5}});
    testing::add_devices(worked, "n0", "gpu", 1);
    worked.input.demands = {{"net", 0.001, 40, 32}};
    const Plan plan = policy(name)->plan(worked.input);
    EXPECT_TRUE(plan.schedulable()) << name;
    EXPECT_EQ(violations(plan, worked.input), "") << name;
  }
}

TEST(AnyPolicy, PlansNothingForAModelWithoutRate) {
  for (const std::string_view name : testing::share_policies()) {
    Worked worked;
    testing::add_profile(worked, "gpu", {{"net", 1, 0.5}});
    testing::add_devices(worked, "n0", "gpu", 1);
    worked.input.demands = {{"net", 0, 40, 32}};
    const Plan plan = policy(name)->plan(worked.input);
    EXPECT_TRUE(plan.schedulable()) << name;
    EXPECT_TRUE(plan.gpulets.empty()) << name;
  }
}

// A batch that only holds the mean leaves a queue behind every burst.
TEST(AnyPolicy, PlansForBurstsWhereTheSloAllows) {
  for (const std::string_view name : testing::share_policies()) {
    if (name == "elastic-one-pass") continue;  // it leaves spare share
    Worked worked;
    testing::add_profile(worked, "gpu", {{"net", 4, 0.1}});
    testing::add_devices(worked, "n0", "gpu", 1);
    worked.input.demands = {{"net", 400, 60, 32}};
    worked.input.options.headroom = Headroom::poisson;
    const Plan plan = policy(name)->plan(worked.input);
    ASSERT_EQ(plan.gpulets.size(), 1U) << name;
    const PlannedGpulet& gpulet = plan.gpulets.front();
    const double arrivals = 400 * gpulet.duty_cycle_ms / 1000;
    EXPECT_GE(gpulet.assignments.front().batch, arrivals + 3 * std::sqrt(arrivals) * (1 - 1e-6))
        << name;
  }
}

struct UnservedCase {
  std::string what;
  void (*change)(Worked& worked);
  std::string says;
};

class UnservedReason : public ::testing::TestWithParam<UnservedCase> {};

TEST_P(UnservedReason, GivesTheReasonAndAFix) {
  for (const std::string_view name : testing::share_policies()) {
    Worked worked;
    testing::add_profile(worked, "gpu", {{"net", 2, 0.5, 32, 900}});
    testing::add_devices(worked, "n0", "gpu", 2);
    worked.input.demands = {{"net", 100, 40, 32}};
    GetParam().change(worked);
    ASSERT_EQ(validate(worked.input), Status());
    const Plan plan = policy(name)->plan(worked.input);
    ASSERT_EQ(plan.unserved.size(), 1U) << name;
    EXPECT_NE(plan.unserved.front().reason.find(GetParam().says), std::string::npos)
        << name << " says: " << plan.unserved.front().reason;
    EXPECT_EQ(violations(plan, worked.input), "") << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, UnservedReason,
    ::testing::Values(
        UnservedCase{"NoDevice", [](Worked& worked) { worked.input.cluster.devices.clear(); },
                     "no device"},
        UnservedCase{"NoDeviceAllowed",
                     [](Worked& worked) { worked.input.options.max_devices = 0; },
                     "max_devices is 0"},
        UnservedCase{"NotMeasured", [](Worked& worked) { worked.input.demands[0].name = "other"; },
                     "'other' is in no profile of the cluster's device types (gpu)"},
        UnservedCase{"SloTooShort", [](Worked& worked) { worked.input.demands[0].slo_ms = 4; },
                     "raise slo_ms to 5 "},
        UnservedCase{"MemoryTooSmall",
                     [](Worked& worked) {
                       for (Device& device : worked.input.cluster.devices) device.memory_mb = 512;
                     },
                     "needs 900 MB, and the largest device that meets its SLO has 512 MB"},
        UnservedCase{"NoSizeMeasured",
                     [](Worked& worked) {
                       for (Device& device : worked.input.cluster.devices) device.sizes = {{10}};
                     },
                     "have no latency of 'net' at any size"},
        // A whole device serves 32 requests in 18 ms: 1778 a second.
        UnservedCase{"TooMuch", [](Worked& worked) { worked.input.demands[0].rate = 9000; },
                     "add 4 of them"}),
    [](const auto& instance) { return instance.param.what; });

// Three models, each of which fills a device.
Worked three_devices() {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", 4);
  worked.input.demands = {{"a", 900, 66, 32}, {"b", 900, 66, 32}, {"c", 900, 66, 32}};
  return worked;
}

DeviceKey device_of(const Plan& plan, const std::string& model) {
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    for (const Assignment& assignment : gpulet.assignments) {
      if (assignment.model == model) return gpulet.device;
    }
  }
  return {};
}

// Those that open only the devices that they need.
std::vector<std::string_view> compact_policies() {
  std::vector<std::string_view> names = testing::share_policies();
  std::erase(names, "static-equal");
  return names;
}

TEST(Placement, AssignsDevicesByKeyWithoutAPlanInForce) {
  for (const std::string_view name : compact_policies()) {
    const Plan plan = policy(name)->plan(three_devices().input);
    ASSERT_EQ(plan.devices_used(), 3U) << name;
    EXPECT_EQ(plan.gpulets.back().device, (DeviceKey{"n0", 2})) << name;
  }
}

TEST(Placement, KeepsTheOtherModelsInPlaceWhenAModelIsRemoved) {
  for (const std::string_view name : testing::share_policies()) {
    Worked worked = three_devices();
    const Plan before = policy(name)->plan(worked.input);
    if (before.gpulets.size() > 3) continue;  // sbp-split: no model has a device of its own
    worked.input.demands.erase(worked.input.demands.begin());
    worked.input.current = &before;
    const Plan after = policy(name)->plan(worked.input);
    EXPECT_EQ(device_of(after, "b"), device_of(before, "b")) << name;
    EXPECT_EQ(device_of(after, "c"), device_of(before, "c")) << name;
  }
}

TEST(Placement, StaysOnTheDevicesOfThePlanInForce) {
  for (const std::string_view name : compact_policies()) {
    Worked worked = three_devices();
    Plan before = policy(name)->plan(worked.input);
    for (PlannedGpulet& gpulet : before.gpulets) ++gpulet.device.device;
    worked.input.current = &before;
    const Plan after = policy(name)->plan(worked.input);
    for (const char* model : {"a", "b", "c"})
      EXPECT_EQ(device_of(after, model), device_of(before, model)) << name;
  }
}

TEST(Placement, MovesOnlyModelsOfARemovedDevice) {
  for (const std::string_view name : testing::share_policies()) {
    Worked worked = three_devices();
    const Plan before = policy(name)->plan(worked.input);
    if (before.gpulets.size() > 3) continue;  // sbp-split: no model has a device of its own
    worked.input.cluster.devices.erase(worked.input.cluster.devices.begin());
    worked.input.current = &before;
    const Plan after = policy(name)->plan(worked.input);
    EXPECT_EQ(testing::violations(after, worked.input), "") << name;
    int moved = 0;
    for (const char* model : {"a", "b", "c"})
      moved += device_of(after, model) != device_of(before, model);
    EXPECT_EQ(moved, 1) << name;
  }
}

}  // namespace
}  // namespace gpulet::schedule
