#include <gtest/gtest.h>

#include <functional>

#include "serve/plans/reorganisation.h"
#include "tests/support/serve/frontend_parts.h"

namespace gpulet::serve::reorganisation_controller_test {
namespace {

const schedule::Violation kFault{.cause = schedule::ViolationCause::unserved_twice, .model = "a"};

using testing::at_ms;
using testing::byte_model;
using testing::commands;
using testing::FrontendParts;
using testing::only;

// Models a and b, node n0 with a device, and a requested plan.
struct Scenario {
  explicit Scenario(const FrontendOptions& options = {}) : parts(options) {
    for (const char* const name : {"a", "b"})
      parts.models.add(byte_model(name, 1000, 10), at_ms(0));
    parts.join(1, "n0", at_ms(0));
    parts.plan_requests.gather_until(at_ms(0));
  }

  // The MakePlan that is requested at that time, if any.
  std::vector<MakePlan> plan(int ms) {
    FrontendEffects effects;
    parts.reorganisation.plan_if_requested(at_ms(ms), effects);
    return only<MakePlan>(effects);
  }
  FrontendEffects made(std::uint64_t number, schedule::Plan plan, int ms) {
    PlanMade event;
    event.number = number;
    event.result.plan = std::move(plan);
    FrontendEffects effects;
    parts.reorganisation.on_plan_made(std::move(event), at_ms(ms), effects);
    return effects;
  }
  FrontendEffects advance(int ms) {
    FrontendEffects effects;
    parts.reorganisation.advance(at_ms(ms), effects);
    return effects;
  }
  void report(GpuletId id, GpuletState state, int ms) {
    GpuletReport report;
    report.id = id;
    report.state = state;
    parts.send(parts.backends.find(id)->backend.value, report, at_ms(ms));
  }
  // Brings a plan with a gpulet for each of the models into force.
  void serve(const std::vector<std::string>& names, int ms) {
    serve(FrontendParts::plan_for("n0", names), ms);
  }
  void serve(const schedule::Plan& wanted, int ms) {
    made(plan(ms).at(0).number, wanted, ms);
    for (const CreateGpulet& create : commands<CreateGpulet>(advance(ms)))
      report(create.id, GpuletState::ready, ms);
    advance(ms);
  }

  FrontendParts parts;
};

TEST(ReorganisationController, MakesARequestedPlanUnlessSomethingIsInTheWay) {
  struct Case {
    const char* what;
    std::function<void(FrontendParts&)> arrange;
    bool makes_a_plan;
  };
  const std::vector<Case> cases = {
      {"requested", [](FrontendParts&) {}, true},
      {"one is being made", [](FrontendParts& parts) { parts.plan_requests.begin(); }, false},
      {"more nodes may follow",
       [](FrontendParts& parts) { parts.plan_requests.gather_until(at_ms(5001)); }, false},
      {"stages are left",
       [](FrontendParts& parts) { parts.deployment.begin(std::deque<schedule::Plan>(1)); }, false},
      {"stages are left, but it is urgent",
       [](FrontendParts& parts) {
         parts.deployment.begin(std::deque<schedule::Plan>(1));
         parts.plan_requests.add_urgent("now");
       },
       true},
      {"a rollout",
       [](FrontendParts& parts) {
         FrontendEffects effects;
         parts.rollouts.begin(FrontendParts::plan_for("n0", {"a"}), {{}, {0}, {}}, at_ms(0),
                              effects);
       },
       false},
      {"no device with a profile",
       [](FrontendParts& parts) {
         parts.profiles.profiles = std::make_shared<const profile::ProfileSet>();
       },
       false},
      {"no device", [](FrontendParts& parts) { parts.backends.remove(BackendId{1}); }, false},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    Scenario scenario;
    one.arrange(scenario.parts);
    scenario.parts.plan_requests.add("a reason");
    EXPECT_EQ(!scenario.plan(5000).empty(), one.makes_a_plan);
  }
}

TEST(ReorganisationController, WaitsBetweenPlansUnlessItIsUrgent) {
  Scenario scenario;
  ASSERT_EQ(scenario.plan(0).size(), 1U);
  EXPECT_TRUE(scenario.plan(2000).empty()) << "nothing is requested";
  scenario.parts.plan_requests.discard();
  scenario.parts.plan_requests.add("a reason");
  EXPECT_TRUE(scenario.plan(999).empty());
  scenario.parts.plan_requests.add_urgent("a reason");
  EXPECT_EQ(scenario.plan(999).size(), 1U);
  scenario.parts.plan_requests.discard();
  scenario.parts.plan_requests.add("a reason");
  EXPECT_EQ(scenario.plan(1999).size(), 1U);
}

TEST(ReorganisationController, LeavesOutWithheldModelsAndKeepsSuspectsAlone) {
  Scenario scenario;
  scenario.parts.models.setbacks().back_off("a", at_ms(60'000));
  scenario.parts.models.setbacks().quarantine().suspect("b", at_ms(0));
  const std::vector<MakePlan> plans = scenario.plan(0);
  ASSERT_EQ(plans.size(), 1U);
  ASSERT_EQ(plans[0].request.demands.size(), 1U);
  EXPECT_EQ(plans[0].request.demands[0].name, "b");
  EXPECT_TRUE(plans[0].request.demands[0].alone);
  EXPECT_TRUE(plans[0].may_share.empty());
  EXPECT_EQ(plans[0].request.cluster.devices.size(), 1U);
  EXPECT_TRUE(plans[0].request.closed.empty());
}

// A device that is slow for a while must not cost a model its only place.
TEST(ReorganisationController, AModelThatHungMayShareIfItIsNotServedOtherwise) {
  Scenario scenario;
  scenario.parts.models.setbacks().quarantine().hung("b", at_ms(0));
  const std::vector<MakePlan> plans = scenario.plan(0);
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans[0].may_share, std::set<std::string>{"b"});
}

TEST(ReorganisationController, PlansThatCannotBeUsedAreRequestedAgain) {
  struct Case {
    const char* what;
    std::function<void(FrontendParts&, PlanMade&)> arrange;
    bool decided;
    bool requested;
  };
  const std::vector<Case> cases = {
      {"a good plan", [](FrontendParts&, PlanMade&) {}, true, false},
      {"an outdated plan", [](FrontendParts&, PlanMade& event) { --event.number; }, false, false},
      {"faults", [](FrontendParts&, PlanMade& event) { event.result.faults = {kFault}; }, false,
       false},
      {"its device was lost",
       [](FrontendParts& parts, PlanMade&) { parts.backends.start_draining(BackendId{1}); }, false,
       true},
      {"its device was excluded",
       [](FrontendParts& parts, PlanMade&) {
         parts.exclusions.failed({"n0", 0}, GpuletId{7}, FailureCause::device,
                                 {StatusCode::internal, "why"}, GpuletId{8}, at_ms(0));
       },
       false, true},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    Scenario scenario;
    PlanMade event;
    event.number = scenario.plan(0).at(0).number;
    event.result.plan = FrontendParts::plan_for("n0", {"a", "b"});
    one.arrange(scenario.parts, event);
    FrontendEffects effects;
    scenario.parts.reorganisation.on_plan_made(std::move(event), at_ms(1), effects);
    EXPECT_EQ(scenario.parts.history.decision() != nullptr, one.decided);
    EXPECT_EQ(scenario.parts.deployment.stages().size(), one.decided ? 1U : 0U);
    EXPECT_EQ(scenario.parts.plan_requests.any(), one.requested);
  }
}

TEST(ReorganisationController, ARefusedPlanIsTriedAgainAtTheEndOfThePeriod) {
  Scenario scenario;
  PlanMade event;
  event.number = scenario.plan(0).at(0).number;
  event.result.faults = {kFault};
  FrontendEffects effects;
  scenario.parts.reorganisation.on_plan_made(std::move(event), at_ms(1), effects);
  scenario.parts.reorganisation.tick(at_ms(19'999));
  EXPECT_FALSE(scenario.parts.plan_requests.any());
  scenario.parts.reorganisation.tick(at_ms(20'000));
  EXPECT_TRUE(scenario.parts.plan_requests.any());
}

TEST(ReorganisationController, APlanComesIntoForceWhenAllItsGpuletsAreReady) {
  Scenario scenario;
  Deployment& deployment = scenario.parts.deployment;
  scenario.made(scenario.plan(0).at(0).number, FrontendParts::plan_for("n0", {"a", "b"}), 0);
  const auto created = commands<CreateGpulet>(scenario.advance(1));
  ASSERT_EQ(created.size(), 2U);
  EXPECT_EQ(created[0].models.at(0).name, "a");
  EXPECT_LT(created[0].id, created[1].id);
  scenario.report(created[0].id, GpuletState::ready, 2);
  scenario.advance(2);
  EXPECT_EQ(deployment.in_force().epoch(), Epoch{0});
  EXPECT_TRUE(deployment.in_force().serving().contains(created[0].id))
      << "nothing else serves its model";
  EXPECT_FALSE(deployment.in_force().serving().contains(created[1].id));
  scenario.report(created[1].id, GpuletState::ready, 3);
  scenario.advance(3);
  EXPECT_EQ(deployment.in_force().epoch(), Epoch{1});
  EXPECT_FALSE(deployment.rollout());
  EXPECT_EQ(deployment.in_force().serving().size(), 2U);
  EXPECT_EQ(scenario.parts.history.plans().size(), 1U);
  EXPECT_TRUE(scenario.parts.models.table().has_ready_slot("a"));
  EXPECT_TRUE(scenario.parts.models.table().has_ready_slot("b"));
}

TEST(ReorganisationController, AGpuletIsToBeReadyForTheBatchesOfItsPlan) {
  Scenario scenario;
  schedule::Plan plan = FrontendParts::plan_for("n0", {"a"});
  schedule::PlannedGpulet& gpulet = plan.gpulets.at(0);
  gpulet.assignments.at(0).batch = 3;
  gpulet.policy_choice = schedule::PolicyChoice{Share{40}, 30, gpulet.assignments};
  gpulet.policy_choice->assignments.at(0).batch = 5;
  scenario.made(scenario.plan(0).at(0).number, plan, 0);
  const auto created = commands<CreateGpulet>(scenario.advance(1));
  ASSERT_EQ(created.size(), 1U);
  EXPECT_EQ(created[0].models.at(0).planned_batches, (std::vector<std::uint32_t>{3, 5}));
  EXPECT_GE(created[0].models.at(0).max_batch, 5U);
}

TEST(ReorganisationController, APlanComesIntoForceWithoutGpuletsThatAreNotReadyInTime) {
  Scenario scenario;
  Deployment& deployment = scenario.parts.deployment;
  scenario.made(scenario.plan(0).at(0).number, FrontendParts::plan_for("n0", {"a"}), 0);
  const auto created = commands<CreateGpulet>(scenario.advance(0));
  ASSERT_EQ(created.size(), 1U);
  EXPECT_EQ(scenario.parts.reorganisation.next_wake(at_ms(0)), at_ms(3000));
  scenario.advance(2999);
  EXPECT_EQ(deployment.in_force().epoch(), Epoch{0});
  EXPECT_TRUE(commands<RetireGpulet>(scenario.advance(3000)).empty());
  EXPECT_EQ(deployment.in_force().epoch(), Epoch{1});
  EXPECT_TRUE(deployment.in_force().serving().empty());
  EXPECT_TRUE(deployment.in_force().missing().contains(created[0].id));
  EXPECT_TRUE(scenario.parts.exclusions.allows({"n0", 0}));
  scenario.report(created[0].id, GpuletState::ready, 9000);
  scenario.advance(9000);
  EXPECT_TRUE(deployment.in_force().serving().contains(created[0].id));
  EXPECT_TRUE(deployment.in_force().missing().empty());
  EXPECT_TRUE(scenario.parts.models.table().has_ready_slot("a"));
}

// Whatever becomes of the gpulet that is to replace another one, that one serves until it is
// replaced.
TEST(ReorganisationController, WhatMissingGpuletsAreToReplaceServesOn) {
  for (const bool arrives : {true, false}) {
    Scenario scenario;
    scenario.serve({"a", "b"}, 0);
    const auto before = scenario.parts.deployment.in_force().serving();
    scenario.parts.plan_requests.add("a reason");
    schedule::Plan next = FrontendParts::plan_for("n0", {"b", "a"});
    next.gpulets[1].size = Share{100};
    scenario.made(scenario.plan(2000).at(0).number, next, 2000);
    const auto created = commands<CreateGpulet>(scenario.advance(2000));
    ASSERT_EQ(created.size(), 1U);
    const FrontendEffects late = scenario.advance(5000);
    EXPECT_TRUE(commands<RetireGpulet>(late).empty());
    EXPECT_EQ(scenario.parts.deployment.in_force().epoch(), Epoch{2});
    EXPECT_TRUE(scenario.parts.models.table().has_ready_slot("a"));
    EXPECT_TRUE(scenario.parts.models.table().has_ready_slot("b"));
    EXPECT_EQ(scenario.parts.deployment.in_force().serving().size(), 2U);
    scenario.report(created[0].id, arrives ? GpuletState::ready : GpuletState::failed, 6000);
    const auto retired = commands<RetireGpulet>(scenario.advance(6000));
    EXPECT_TRUE(scenario.parts.models.table().has_ready_slot("a"));
    EXPECT_EQ(scenario.parts.deployment.in_force().serving().contains(created[0].id), arrives);
    ASSERT_EQ(retired.size(), arrives ? 1U : 0U);
    if (arrives) {
      EXPECT_EQ(before.at(retired[0].id).assignments[0].model, "a");
    }
  }
}

schedule::Plan plan_of(const std::vector<std::pair<std::string, int>>& sizes) {
  schedule::Plan plan = FrontendParts::plan_for("n0", {});
  for (const auto& [model, percent] : sizes) {
    plan.gpulets.push_back(FrontendParts::plan_for("n0", {model}).gpulets[0]);
    plan.gpulets.back().size = Share{percent};
  }
  return plan;
}

TEST(ReorganisationController, AGpuletServesWithoutTheSlowestOfItsPlan) {
  Scenario scenario;
  Deployment& deployment = scenario.parts.deployment;
  scenario.serve(plan_of({{"a", 60}, {"b", 40}}), 0);
  scenario.parts.plan_requests.add("a reason");
  scenario.made(scenario.plan(2000).at(0).number, plan_of({{"b", 60}, {"a", 40}}), 2000);
  const auto created = commands<CreateGpulet>(scenario.advance(2000));
  ASSERT_EQ(created.size(), 2U);
  const GpuletId b = created[0].id;
  const GpuletId a = created[1].id;
  const auto before = deployment.in_force().serving();
  scenario.report(a, GpuletState::ready, 2200);
  const auto retired = commands<RetireGpulet>(scenario.advance(2200));
  ASSERT_EQ(retired.size(), 1U);
  EXPECT_EQ(before.at(retired[0].id).assignments[0].model, "a");
  EXPECT_TRUE(deployment.in_force().serving().contains(a));
  EXPECT_EQ(deployment.in_force().epoch(), Epoch{1});
  ASSERT_TRUE(deployment.rollout());
  // The time of the plan is up; the slow gpulet joins it nevertheless.
  EXPECT_TRUE(commands<RetireGpulet>(scenario.advance(5000)).empty());
  EXPECT_EQ(deployment.in_force().epoch(), Epoch{2});
  EXPECT_EQ(deployment.in_force().stand_ins().size(), 1U);
  scenario.report(b, GpuletState::ready, 12'000);
  EXPECT_EQ(commands<RetireGpulet>(scenario.advance(12'000)).size(), 1U);
  EXPECT_TRUE(deployment.in_force().serving().contains(b));
  EXPECT_TRUE(deployment.in_force().stand_ins().empty());
}

TEST(ReorganisationController, AnAbandonedRolloutIsUndoneByThePlanInForce) {
  Scenario scenario;
  Deployment& deployment = scenario.parts.deployment;
  const schedule::Plan first = plan_of({{"a", 50}});
  scenario.serve(first, 0);
  const GpuletId a = deployment.in_force().serving().begin()->first;
  scenario.parts.plan_requests.add("a reason");
  schedule::Plan second = plan_of({{"a", 50}, {"b", 50}});
  second.gpulets[0].assignments[0].rate = 20;
  scenario.made(scenario.plan(2000).at(0).number, second, 2000);
  const auto created = commands<CreateGpulet>(scenario.advance(2000));
  ASSERT_EQ(created.size(), 1U);
  EXPECT_EQ(deployment.in_force().serving().at(a).assignments[0].rate, 20)
      << "it need not wait for b";
  scenario.report(created[0].id, GpuletState::failed, 2100);
  scenario.report(created[0].id, GpuletState::gone, 2100);
  EXPECT_FALSE(deployment.rollout());
  scenario.parts.plan_requests.add_urgent("a reason");
  scenario.made(scenario.plan(4000).at(0).number, first, 4000);
  EXPECT_EQ(commands<AssignGpulet>(scenario.advance(4000)).size(), 1U);
  EXPECT_EQ(deployment.in_force().serving().at(a).assignments[0].rate, 10);
}

TEST(ReorganisationController, AGpuletThatGrowsWaitsForItsShare) {
  Scenario scenario;
  Deployment& deployment = scenario.parts.deployment;
  scenario.serve(plan_of({{"a", 60}, {"b", 40}}), 0);
  scenario.parts.plan_requests.add("a reason");
  scenario.made(scenario.plan(2000).at(0).number, plan_of({{"b", 60}, {"a", 40}}), 2000);
  const auto created = commands<CreateGpulet>(scenario.advance(2000));
  scenario.report(created[0].id, GpuletState::ready, 2200);
  EXPECT_TRUE(commands<RetireGpulet>(scenario.advance(2200)).empty());
  EXPECT_FALSE(deployment.in_force().serving().contains(created[0].id));
  scenario.advance(5000);
  EXPECT_TRUE(deployment.in_force().missing().contains(created[0].id))
      << "ready, but the other is not";
  scenario.report(created[1].id, GpuletState::ready, 6000);
  EXPECT_EQ(commands<RetireGpulet>(scenario.advance(6000)).size(), 2U);
  EXPECT_EQ(deployment.in_force().serving().size(), 2U);
  EXPECT_TRUE(deployment.in_force().missing().empty());
}

// A device of 100 MB with a gpulet of 60 MB for a and one of 30 MB for b, whose sizes change.
struct ShortOfMemory {
  ShortOfMemory() {
    profile::Profile profile = testing::card_profile({{"a", 5}, {"b", 5}});
    profile.models.at("a").memory_mb = 60;
    profile.models.at("b").memory_mb = 30;
    parts().profiles.profiles =
        std::make_shared<const profile::ProfileSet>(profile::ProfileSet{{profile.name, profile}});
    DeviceOffer device = FrontendParts::device("n1", 0);
    device.device.memory_mb = 100;
    parts().send(2, Hello{"n1", {device}, {}}, at_ms(0));
    parts().plan_requests.gather_until(at_ms(0));
    scenario.serve(on_n1(plan_of({{"a", 60}, {"b", 40}})), 0);
  }
  FrontendParts& parts() { return scenario.parts; }
  static schedule::Plan on_n1(schedule::Plan plan) {
    for (schedule::PlannedGpulet& one : plan.gpulets) one.device = {"n1", 0};
    return plan;
  }
  void change() {
    parts().plan_requests.add("a reason");
    scenario.made(scenario.plan(2000).at(0).number, on_n1(plan_of({{"b", 60}, {"a", 40}})), 2000);
  }

  Scenario scenario;
};

TEST(ReorganisationController, OneGpuletAtATimeIsReplacedInPlace) {
  ShortOfMemory one;
  Scenario& scenario = one.scenario;
  Deployment& deployment = scenario.parts.deployment;
  const auto before = deployment.in_force().serving();
  one.change();
  EXPECT_EQ(scenario.parts.history.decision()->plan.notes.size(), 2U);
  const FrontendEffects first = scenario.advance(2000);
  EXPECT_TRUE(commands<CreateGpulet>(first).empty());
  const auto retired = commands<RetireGpulet>(first);
  ASSERT_EQ(retired.size(), 1U);
  EXPECT_EQ(before.at(retired[0].id).assignments[0].model, "b");
  EXPECT_FALSE(scenario.parts.models.table().has_ready_slot("b"));
  EXPECT_TRUE(scenario.parts.models.table().has_ready_slot("a"));
  ASSERT_EQ(deployment.in_force().outages().all().size(), 2U);
  EXPECT_TRUE(deployment.in_force().outages().all()[0].begun);
  EXPECT_FALSE(deployment.in_force().outages().all()[1].begun);
  EXPECT_EQ(deployment.in_force().outages().all()[0].dark, (std::vector<GpuletId>{retired[0].id}));
  EXPECT_EQ(deployment.in_force().outages().all()[1].models, (std::vector<std::string>{"a"}));
  EXPECT_EQ(deployment.in_force().outages().all()[1].expected, Duration{})
      << "as long as it took before";

  scenario.report(retired[0].id, GpuletState::gone, 2100);
  const auto created = commands<CreateGpulet>(scenario.advance(2100));
  ASSERT_EQ(created.size(), 1U);
  EXPECT_EQ(created[0].models[0].name, "b");
  scenario.report(created[0].id, GpuletState::ready, 4000);
  const FrontendEffects second = scenario.advance(4000);
  EXPECT_FALSE(deployment.in_force().serving().contains(created[0].id)) << "60 % beside 60 %";
  const auto next = commands<RetireGpulet>(second);
  ASSERT_EQ(next.size(), 1U);
  scenario.report(next[0].id, GpuletState::gone, 4100);
  scenario.advance(4100);
  EXPECT_TRUE(scenario.parts.models.table().has_ready_slot("b")) << "there is room for it now";
}

TEST(ReorganisationController, TheNextPlanKeepsWhatItCanAndRetiresTheRest) {
  Scenario scenario;
  scenario.serve({"a", "b"}, 0);
  ASSERT_EQ(scenario.parts.deployment.in_force().epoch(), Epoch{1});
  const auto before = scenario.parts.deployment.in_force().serving();
  scenario.parts.plan_requests.add("a reason");
  const std::vector<MakePlan> plans = scenario.plan(2000);
  ASSERT_EQ(plans.size(), 1U);
  ASSERT_TRUE(plans[0].request.current);
  scenario.made(plans[0].number, FrontendParts::plan_for("n0", {"a"}), 2000);
  const FrontendEffects effects = scenario.advance(2001);
  EXPECT_TRUE(commands<CreateGpulet>(effects).empty());
  const auto retired = commands<RetireGpulet>(effects);
  ASSERT_EQ(retired.size(), 1U);
  EXPECT_EQ(before.at(retired[0].id).assignments[0].model, "b");
  EXPECT_EQ(scenario.parts.deployment.in_force().epoch(), Epoch{2});
}

TEST(ReorganisationController, AnUnchangedPlanChangesNothing) {
  Scenario scenario;
  scenario.serve({"a", "b"}, 0);
  scenario.parts.plan_requests.add("a reason");
  const std::uint64_t number = scenario.plan(2000).at(0).number;
  EXPECT_TRUE(scenario.made(number, FrontendParts::plan_for("n0", {"a", "b"}), 2000).empty());
  EXPECT_TRUE(scenario.parts.deployment.stages().empty());
}

TEST(ReorganisationController, GpuletsOnExcludedDevicesStay) {
  Scenario scenario;
  scenario.serve({"a", "b"}, 0);
  scenario.parts.join(2, "n1", at_ms(1000));
  scenario.parts.plan_requests.gather_until(at_ms(1000));
  scenario.parts.exclusions.failed({"n0", 0}, GpuletId{7}, FailureCause::device,
                                   {StatusCode::internal, "why"}, GpuletId{8}, at_ms(1000));
  const std::vector<MakePlan> plans = scenario.plan(2000);
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans[0].request.closed, (std::set<schedule::DeviceKey>{{"n0", 0}}));
  EXPECT_EQ(plans[0].request.kept.size(), 2U);
}

TEST(ReorganisationController, DrainingNodesAreReleasedIfNothingCanTakeOver) {
  Scenario scenario;
  scenario.serve({"a", "b"}, 0);
  scenario.parts.send(1, Draining{}, at_ms(1000));
  FrontendEffects effects;
  scenario.parts.reorganisation.plan_if_requested(at_ms(1001), effects);
  EXPECT_TRUE(only<MakePlan>(effects).empty());
  EXPECT_EQ(commands<RetireGpulet>(effects).size(), 2U);
}

}  // namespace
}  // namespace gpulet::serve::reorganisation_controller_test
