// The pipeline of plans: closed devices keep what serves there and get nothing new, spare share
// serves nobody worse, and what chance breaks is not promised.
#include "gpulet/planning/pipeline.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/serve/world.h"

namespace gpulet::planning::pipeline_test {
namespace {

using schedule::PlannedGpulet;
using serve::testing::card_profile;

schedule::Device card(const std::string& node, std::uint32_t device) {
  schedule::Device one;
  one.key = {node, device};
  one.type = "card";
  one.partitioning = "simulated";
  for (const int percent : {20, 40, 50, 60, 80, 100}) one.sizes.push_back(Share{percent});
  return one;
}

PlanRequest request_for(std::size_t devices, const std::map<std::string, double>& rates) {
  PlanRequest request;
  for (std::uint32_t i = 0; i < devices; ++i)
    request.cluster.devices.push_back(card("n" + std::to_string(i), 0));
  std::map<std::string, double> base_ms;
  for (const auto& [model, rate] : rates) {
    base_ms[model] = 4;
    request.demands.push_back({model, rate, 100, 16});
  }
  auto profiles = std::make_shared<profile::ProfileSet>();
  profiles->emplace("card", card_profile(base_ms));
  request.profiles = std::move(profiles);
  return request;
}

PlanResult planned(const PlanRequest& request) {
  return make_plan(request, *schedule::make_policy("elastic").value());
}

std::vector<PlannedGpulet> on(const schedule::Plan& plan, const std::string& node) {
  std::vector<PlannedGpulet> there;
  std::copy_if(plan.gpulets.begin(), plan.gpulets.end(), std::back_inserter(there),
               [&node](const PlannedGpulet& one) { return one.device.node == node; });
  return there;
}

TEST(ChooseInterference, IsCombinedForEveryTypeThatKnowsItsOwnUnlessAskedOtherwise) {
  profile::ProfileSet profiles;
  profiles.emplace("card", card_profile({{"a", 4}, {"b", 4}}));
  profile::Profile paired = profiles.at("card");
  paired.pairs = {{"a", 1, Share{50}, "b", 1, Share{50}, 9}};
  profiles.emplace("paired", paired);
  const auto chosen = choose_interference(profiles, {"card", "paired"}, std::nullopt);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen.value().kind, profile::InterferenceKind::combined);
  EXPECT_EQ(chosen.value().models.count("paired"), 1U);
  EXPECT_EQ(chosen.value().models.count("card"), 0U);
  EXPECT_EQ(choose_interference(profiles, {"card"}, std::nullopt).value().kind,
            profile::InterferenceKind::none);
  EXPECT_EQ(choose_interference(profiles, {"card"}, "combined").status().code(),
            StatusCode::not_found);
  EXPECT_EQ(choose_interference(profiles, {"card"}, "guessed").status().code(),
            StatusCode::invalid);
}

TEST(PlanAround, ClosedDevicesGetNoNewGpulets) {
  PlanRequest request = request_for(2, {{"a", 20}});
  request.closed = {{"n0", 0}};
  const PlanResult made = planned(request);
  EXPECT_TRUE(made.faults.empty());
  EXPECT_TRUE(made.plan.schedulable());
  EXPECT_TRUE(on(made.plan, "n0").empty());
  EXPECT_EQ(made.plan.policy, "elastic");
}

TEST(PlanAround, WithoutAnOpenDeviceOnlyKeptGpuletsServe) {
  PlanRequest before = request_for(1, {{"a", 20}});
  PlanRequest request = request_for(1, {{"a", 20}, {"b", 5}});
  const schedule::Plan first = planned(before).plan;
  ASSERT_EQ(first.gpulets.size(), 1U);
  request.current = first;
  request.closed = {{"n0", 0}};
  request.kept = first.gpulets;
  const PlanResult made = planned(request);
  EXPECT_TRUE(made.faults.empty()) << to_string(made.faults.front());
  EXPECT_EQ(made.plan.gpulets, first.gpulets);
  ASSERT_EQ(made.plan.unserved.size(), 1U);
  EXPECT_EQ(made.plan.unserved[0].model, "b");
}

TEST(PlanAround, NoOpenDeviceIsNotAFault) {
  PlanRequest request = request_for(1, {{"a", 20}});
  request.closed = {{"n0", 0}};
  const PlanResult made = planned(request);
  EXPECT_TRUE(made.faults.empty());
  EXPECT_FALSE(made.plan.schedulable());
}

TEST(PlanAround, KeptGpuletsThatBreakTheRulesMove) {
  PlanRequest request = request_for(2, {{"a", 20}});
  schedule::Plan first = planned(request).plan;
  first.gpulets[0].assignments[0].latency_ms *= 2;  // as if the profile had changed since
  request.current = first;
  request.closed = {first.gpulets[0].device};
  request.kept = first.gpulets;
  const PlanResult made = planned(request);
  EXPECT_TRUE(made.faults.empty());
  EXPECT_TRUE(made.plan.schedulable());
  EXPECT_TRUE(on(made.plan, first.gpulets[0].device.node).empty());
}

// What a model serves does not depend on the share that others have to spare.
RC_GTEST_PROP(MakePlanProperty, SpareShareLeavesNoDemandUnserved, ()) {
  const auto devices = *rc::gen::inRange<std::size_t>(1, 4);
  std::optional<schedule::Plan> in_force;
  for (int step = 0; step < 4; ++step) {
    std::map<std::string, double> rates;
    for (const char* const name : {"a", "b", "c"}) rates[name] = *rc::gen::inRange(1, 200);
    PlanRequest request = request_for(devices, rates);
    const bool possible = planned(request).plan.schedulable();
    request.current = in_force;
    const PlanResult made = planned(request);
    RC_ASSERT(made.faults.empty());
    RC_ASSERT(!possible || made.plan.schedulable());
    in_force = made.plan;
  }
}

TEST(MakePlan, LeavesSpareShareFreeWhereItIsNotToBeUsed) {
  PlanRequest request = request_for(1, {{"a", 5}});
  const schedule::Plan with = planned(request).plan;
  request.current = with;
  request.options.use_spare = false;
  const schedule::Plan without = planned(request).plan;
  ASSERT_EQ(without.gpulets.size(), 1U);
  EXPECT_FALSE(without.gpulets[0].policy_choice.has_value());
  EXPECT_EQ(without.gpulets[0].size, policy_size(with.gpulets[0]));
  EXPECT_LT(without.gpulets[0].size, with.gpulets[0].size);
}

// Batches of 16 whatever the rate: no repair helps.
class SixteenAtOnce final : public schedule::Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "sixteen-at-once"; }
  [[nodiscard]] bool scales() const override { return false; }
  [[nodiscard]] schedule::Plan plan(const schedule::PlanInput& input) const override {
    const schedule::ModelDemand& demand = input.demands.front();
    PlannedGpulet gpulet{{"n0", 0}, Share{100}, 5, {}};
    gpulet.assignments = {{demand.name, demand.rate, 16, 5, 1, demand.slo_ms}};
    schedule::Plan plan;
    plan.gpulets = {gpulet};
    return plan;
  }
};

// A batch of n takes 1 + n/4 ms. The objective leaves hardly more than one round to wait.
TEST(MakePlan, DoesNotPromiseWhatChanceBreaks) {
  PlanRequest request = request_for(1, {});
  request.cluster.devices.front().sizes = {Share{100}};
  profile::Profile profile;
  profile.name = "card";
  profile.models.emplace(
      "a", profile::ModelProfile{
               profile::LatencyTable::create({{1, Share{100}, 1.25}, {32, Share{100}, 9}}).value(),
               {},
               {}});
  request.profiles =
      std::make_shared<const profile::ProfileSet>(profile::ProfileSet{{"card", profile}});
  request.demands = {{"a", 2600, 10.1, 32}};
  request.options.margin = 1;
  request.options.verify = false;
  const PlanResult policys_own = make_plan(request, SixteenAtOnce());
  EXPECT_TRUE(policys_own.faults.empty());
  EXPECT_TRUE(policys_own.plan.schedulable());
  request.options.verify = true;
  const PlanResult verified = make_plan(request, SixteenAtOnce());
  EXPECT_TRUE(verified.faults.empty());
  ASSERT_EQ(verified.plan.unserved.size(), 1U);
  EXPECT_GT(verified.plan.unserved[0].rate, 0.007 * 2600);
  EXPECT_EQ(verified.explanation.missing[0].cause, schedule::UnservedCause::chance);
}

using Places = std::vector<std::tuple<schedule::DeviceKey, Share, std::vector<std::string>>>;

Places places_of(const schedule::Plan& plan) {
  Places places;
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    std::vector<std::string> models;
    for (const schedule::Assignment& one : gpulet.assignments) models.push_back(one.model);
    std::sort(models.begin(), models.end());
    places.emplace_back(gpulet.device, gpulet.size, std::move(models));
  }
  std::sort(places.begin(), places.end());
  return places;
}

RC_GTEST_PROP(MakePlanProperty, LowerRatesChangeNoGpuletUnlessADeviceBecomesFree, ()) {
  std::map<std::string, double> rates;
  for (const char* const name : {"a", "b", "c", "d"}) rates[name] = *rc::gen::inRange(5, 200);
  PlanRequest request = request_for(*rc::gen::inRange<std::size_t>(1, 5), rates);
  const PlanResult in_force = planned(request);
  RC_PRE(in_force.plan.schedulable());
  for (schedule::ModelDemand& demand : request.demands)
    demand.rate *= *rc::gen::inRange(80, 101) / 100.0;
  request.current = in_force.plan;
  const PlanResult made = planned(request);
  RC_ASSERT(made.faults.empty());
  RC_ASSERT(made.plan.schedulable());
  RC_ASSERT(made.plan.devices_used() < in_force.plan.devices_used() ||
            places_of(made.plan) == places_of(in_force.plan));
}

// A plan with a place for growth is not worth a model that goes short today.
RC_GTEST_PROP(MakePlanProperty, GrowthTakesNothingFromWhatIsServedNow, ()) {
  std::map<std::string, double> rates;
  for (const char* const name : {"a", "b", "c"}) rates[name] = *rc::gen::inRange(5, 400);
  PlanRequest now = request_for(*rc::gen::inRange<std::size_t>(1, 3), rates);
  now.options.verify = false;
  PlanRequest grown = now;
  grown.growth = *rc::gen::inRange(1, 100) / 100.0;
  for (schedule::ModelDemand& demand : grown.demands) demand.rate *= 1 + grown.growth;
  const PlanResult made = planned(grown);
  RC_ASSERT(made.faults.empty());
  RC_CLASSIFY(!made.plan.schedulable());
  RC_ASSERT(made.plan.schedulable() || !planned(now).plan.schedulable());
}

// Nothing is left to chance.
RC_GTEST_PROP(MakePlanProperty, AtFixedIntervalsThePlanIsThePolicysOwn, ()) {
  std::map<std::string, double> rates;
  for (const char* const name : {"a", "b", "c"}) rates[name] = *rc::gen::inRange(5, 400);
  PlanRequest request = request_for(*rc::gen::inRange<std::size_t>(1, 4), rates);
  request.options.headroom = schedule::Headroom::none;
  const schedule::Plan verified = planned(request).plan;
  request.options.verify = false;
  RC_ASSERT(verified == planned(request).plan);
}

// Elastic partitioning that says that it keeps a budget, and adds up what it is given.
class KeepsBudget : public schedule::Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return elastic_->name(); }
  [[nodiscard]] bool keeps_budget() const override { return true; }
  [[nodiscard]] schedule::Plan plan(const schedule::PlanInput& input) const override {
    const bool searches = input.options.max_devices.value_or(1) > 0;
    if (searches) given_ms += input.options.budget_ms;
    ++plans;
    return elastic_->plan(input);
  }

  mutable double given_ms = 0;
  mutable std::size_t plans = 0;

 private:
  std::unique_ptr<schedule::Policy> elastic_ = schedule::make_policy("elastic").value();
};

RC_GTEST_PROP(MakePlanProperty, AllCallsOfThePolicyShareTheBudget, ()) {
  std::map<std::string, double> rates;
  for (const char* const name : {"a", "b", "c"}) rates[name] = *rc::gen::inRange(5, 2000);
  PlanRequest request = request_for(*rc::gen::inRange<std::size_t>(1, 4), rates);
  request.options.budget_ms = *rc::gen::inRange(0, 300);
  const KeepsBudget policy;
  const PlanResult made = make_plan(request, policy);
  RC_ASSERT(made.faults.empty());
  RC_ASSERT(policy.plans > 0U);
  RC_ASSERT(policy.given_ms <= request.options.budget_ms * (1 + 1e-9));
  RC_CLASSIFY(!made.plan.schedulable());
}

TEST(PlanBudget, IsNeverExceeded) {
  PlanBudget budget(200);
  EXPECT_DOUBLE_EQ(budget.take_ms(), 100);
  EXPECT_DOUBLE_EQ(budget.take_ms(), 50);
}

RC_GTEST_PROP(PlanAroundProperty, ThePlanIsValidAndKeepsClosedDevices, ()) {
  const auto devices = *rc::gen::inRange<std::size_t>(1, 5);
  const auto rates = [] {
    std::map<std::string, double> some;
    for (const char* const name : {"a", "b", "c", "d"})
      if (*rc::gen::inRange(0, 3) > 0) some[name] = *rc::gen::inRange(1, 300);
    some["e"] = 10;
    return some;
  };
  const auto before = rates();
  auto after = rates();
  PlanRequest first = request_for(devices, before);
  const PlanResult in_force = planned(first);
  RC_PRE(in_force.faults.empty());
  PlanRequest request = request_for(devices, after);
  request.current = in_force.plan;
  for (const schedule::Device& device : request.cluster.devices)
    if (*rc::gen::inRange(0, 2) == 0) request.closed.insert(device.key);
  for (PlannedGpulet gpulet : in_force.plan.gpulets) {
    if (!request.closed.contains(gpulet.device)) continue;
    std::erase_if(gpulet.assignments,
                  [&after](const auto& one) { return !after.contains(one.model); });
    if (!gpulet.assignments.empty()) request.kept.push_back(gpulet);
  }
  const PlanResult made = planned(request);
  RC_ASSERT(made.faults.empty());
  std::size_t there = 0;
  for (const PlannedGpulet& gpulet : made.plan.gpulets) {
    if (!request.closed.contains(gpulet.device)) continue;
    ++there;
    RC_ASSERT(std::any_of(request.kept.begin(), request.kept.end(), [&](const auto& kept) {
      return kept.device == gpulet.device && kept.size == gpulet.size &&
             kept.assignments.size() == gpulet.assignments.size();
    }));
  }
  RC_ASSERT(there == request.kept.size());
}

}  // namespace
}  // namespace gpulet::planning::pipeline_test
