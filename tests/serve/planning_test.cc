// Plans where some devices take no new gpulets: what serves there stays, nothing new is put there,
// and the checker agrees.
#include "gpulet/serve/planning.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/support/serve/world.h"

namespace gpulet::serve::planning_test {
namespace {

using schedule::PlannedGpulet;
using testing::card_profile;

schedule::Device card(const std::string& node, std::uint32_t device) {
  schedule::Device one;
  one.key = {node, device};
  one.type = "card";
  one.partitioning = "simulated";
  for (const int percent : {20, 40, 50, 60, 80, 100}) one.sizes.push_back(Share{percent});
  return one;
}

MakePlan request_for(std::size_t devices, const std::map<std::string, double>& rates) {
  MakePlan request;
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

PlanMade planned(const MakePlan& request) {
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
  MakePlan request = request_for(2, {{"a", 20}});
  request.closed = {{"n0", 0}};
  const PlanMade made = planned(request);
  EXPECT_TRUE(made.faults.empty());
  EXPECT_TRUE(made.plan.schedulable());
  EXPECT_TRUE(on(made.plan, "n0").empty());
  EXPECT_EQ(made.plan.policy, "elastic");
}

TEST(PlanAround, WithoutAnOpenDeviceOnlyKeptGpuletsServe) {
  MakePlan before = request_for(1, {{"a", 20}});
  MakePlan request = request_for(1, {{"a", 20}, {"b", 5}});
  const schedule::Plan first = planned(before).plan;
  ASSERT_EQ(first.gpulets.size(), 1U);
  request.current = first;
  request.closed = {{"n0", 0}};
  request.kept = first.gpulets;
  const PlanMade made = planned(request);
  EXPECT_TRUE(made.faults.empty()) << made.faults.front();
  EXPECT_EQ(made.plan.gpulets, first.gpulets);
  ASSERT_EQ(made.plan.unserved.size(), 1U);
  EXPECT_EQ(made.plan.unserved[0].model, "b");
}

TEST(PlanAround, NoOpenDeviceIsNotAFault) {
  MakePlan request = request_for(1, {{"a", 20}});
  request.closed = {{"n0", 0}};
  const PlanMade made = planned(request);
  EXPECT_TRUE(made.faults.empty());
  EXPECT_FALSE(made.plan.schedulable());
}

TEST(PlanAround, KeptGpuletsThatBreakTheRulesMove) {
  MakePlan request = request_for(2, {{"a", 20}});
  schedule::Plan first = planned(request).plan;
  first.gpulets[0].assignments[0].latency_ms *= 2;  // as if the profile had changed since
  request.current = first;
  request.closed = {first.gpulets[0].device};
  request.kept = first.gpulets;
  const PlanMade made = planned(request);
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
    MakePlan request = request_for(devices, rates);
    const bool possible = planned(request).plan.schedulable();
    request.current = in_force;
    const PlanMade made = planned(request);
    RC_ASSERT(made.faults.empty());
    RC_ASSERT(!possible || made.plan.schedulable());
    in_force = made.plan;
  }
}

TEST(MakePlan, LeavesSpareShareFreeWhereItIsNotToBeUsed) {
  MakePlan request = request_for(1, {{"a", 5}});
  const schedule::Plan with = planned(request).plan;
  request.current = with;
  request.options.use_spare = false;
  const schedule::Plan without = planned(request).plan;
  ASSERT_EQ(without.gpulets.size(), 1U);
  EXPECT_FALSE(without.gpulets[0].policy_choice.has_value());
  EXPECT_EQ(without.gpulets[0].size, policy_size(with.gpulets[0]));
  EXPECT_LT(without.gpulets[0].size, with.gpulets[0].size);
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
  MakePlan first = request_for(devices, before);
  const PlanMade in_force = planned(first);
  RC_PRE(in_force.faults.empty());
  MakePlan request = request_for(devices, after);
  request.current = in_force.plan;
  for (const schedule::Device& device : request.cluster.devices)
    if (*rc::gen::inRange(0, 2) == 0) request.closed.insert(device.key);
  for (PlannedGpulet gpulet : in_force.plan.gpulets) {
    if (!request.closed.contains(gpulet.device)) continue;
    std::erase_if(gpulet.assignments,
                  [&after](const auto& one) { return !after.contains(one.model); });
    if (!gpulet.assignments.empty()) request.kept.push_back(gpulet);
  }
  const PlanMade made = planned(request);
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

TEST(RequestCosts, AreTheDeviceTimePerRequest) {
  schedule::Plan plan;
  schedule::PlannedGpulet half;
  half.size = {50};
  half.assignments = {{"m", 30, 4, 8.0, 1, 100}};
  schedule::PlannedGpulet whole;
  whole.size = {100};
  whole.assignments = {{"m", 10, 2, 6.0, 1, 100}, {"n", 0, 0, 5.0, 1, 100}};
  plan.gpulets = {half, whole};
  RequestCosts costs;
  costs.follow(Epoch{1}, plan);
  // 1 ms of 30 requests, 3 ms of 10.
  EXPECT_NEAR(to_ms(costs.of("m")), 1.5, 1e-6);
  EXPECT_NEAR(to_ms(costs.of("n")), 5.0, 1e-6);
  EXPECT_EQ(costs.of("unknown"), Duration::zero());
}

}  // namespace
}  // namespace gpulet::serve::planning_test
