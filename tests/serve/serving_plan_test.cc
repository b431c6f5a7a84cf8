#include "serve/deploy/serving_plan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "tests/support/serve/frontend_parts.h"

namespace gpulet::serve::serving_plan_test {
namespace {

using testing::at_ms;
using testing::FrontendParts;

// A gpulet's part: half of a device of "n0" for the model.
schedule::PlannedGpulet part(const std::string& model, double rate = 10) {
  schedule::PlannedGpulet made = FrontendParts::plan_for("n0", {model}).gpulets[0];
  made.assignments[0].rate = rate;
  return made;
}

// Parts by gpulet, which outlive the WantedParts made of them.
using Parts = std::map<GpuletId, schedule::PlannedGpulet>;
schedule::WantedParts wanted(const Parts& parts) {
  schedule::WantedParts made;
  for (const auto& [id, one] : parts) made.emplace(id, &one);
  return made;
}

std::set<GpuletId> ids(const ServingPlan::Serving& serving) {
  std::set<GpuletId> made;
  for (const auto& [id, one] : serving) made.insert(id);
  return made;
}

using Ids = std::set<GpuletId>;

TEST(ServingPlan, OnlyANewPlanHasANewEpoch) {
  ServingPlan plan;
  EXPECT_EQ(plan.epoch().value, 0U);
  plan.set_plan(FrontendParts::plan_for("n0", {"a"}));
  EXPECT_EQ(plan.epoch().value, 0U);
  EXPECT_EQ(plan.plan().gpulets.size(), 1U);
  plan.advance(FrontendParts::plan_for("n0", {"a", "b"}));
  EXPECT_EQ(plan.epoch().value, 1U);
  EXPECT_EQ(plan.plan().gpulets.size(), 2U);
}

TEST(ServingPlan, UnservedPartsAreFoundByModel) {
  ServingPlan plan;
  schedule::Plan made;
  made.unserved = {{"a", 10, "first"}, {"b", 20, "second"}, {"a", 30, "third"}};
  plan.set_plan(made);
  ASSERT_NE(plan.unserved_part("a"), nullptr);
  EXPECT_EQ(plan.unserved_part("a")->rate, 10);
  EXPECT_EQ(plan.unserved_part("b")->rate, 20);
  EXPECT_EQ(plan.unserved_part("c"), nullptr);
  plan.set_plan({});
  EXPECT_EQ(plan.unserved_part("a"), nullptr);
}

TEST(ServingPlan, WhatOfAPlanDoesNotServeIsMissingAndOthersStandIn) {
  ServingPlan plan;
  plan.adopt(GpuletId{1}, part("a"));
  plan.adopt(GpuletId{2}, part("b", 5));
  plan.adopt(GpuletId{3}, part("c"));
  const Parts to_come = {
      {GpuletId{1}, part("a")}, {GpuletId{2}, part("b", 9)}, {GpuletId{4}, part("d")}};
  plan.set_missing(wanted(to_come), {"e"});
  EXPECT_EQ(ids(plan.missing()), (Ids{GpuletId{2}, GpuletId{4}}));
  EXPECT_EQ(plan.stand_ins(), (Ids{GpuletId{2}, GpuletId{3}}));
  EXPECT_EQ(plan.lost_models(), std::set<std::string>{"e"});
}

TEST(ServingPlan, AMixtureBeginsAndEndsGpulets) {
  ServingPlan plan;
  plan.adopt(GpuletId{1}, part("a"));
  const Parts to_come = {{GpuletId{2}, part("a", 20)}};
  plan.set_missing(wanted(to_come), {});
  PlannedOutage outage;
  outage.dark = {GpuletId{1}};
  outage.until = GpuletId{2};
  plan.outages().begin(outage);
  plan.follow({{GpuletId{2}}, {GpuletId{1}}}, wanted(to_come));
  EXPECT_EQ(ids(plan.serving()), Ids{GpuletId{2}});
  EXPECT_EQ(plan.serving().at(GpuletId{2}).assignments[0].rate, 20);
  EXPECT_TRUE(plan.missing().empty());
  EXPECT_TRUE(plan.stand_ins().empty());
  EXPECT_TRUE(plan.outages().all().empty());
}

TEST(ServingPlan, AGpuletThatIsLostIsNeededIfItServesOrWasToServe) {
  ServingPlan plan;
  plan.adopt(GpuletId{1}, part("a"));
  const Parts to_come = {{GpuletId{1}, part("a")}, {GpuletId{2}, part("b")}};
  plan.set_missing(wanted(to_come), {});
  EXPECT_FALSE(plan.lose(GpuletId{9}));
  EXPECT_TRUE(plan.lose(GpuletId{1}));
  EXPECT_TRUE(plan.lost_models().empty()) << "it served its part";
  EXPECT_TRUE(plan.lose(GpuletId{2}));
  EXPECT_EQ(plan.lost_models(), std::set<std::string>{"b"});
  EXPECT_FALSE(plan.lose(GpuletId{2}));
  EXPECT_TRUE(plan.missing().empty());
}

TEST(ServingPlan, AGpuletThatStopsServingStandsInForNothing) {
  BackendRegistry nothing_connected;
  for (const bool ended : {false, true}) {
    ServingPlan plan;
    plan.adopt(GpuletId{1}, part("a"));
    plan.set_missing({}, {});
    EXPECT_EQ(plan.stand_ins(), Ids{GpuletId{1}});
    ended ? plan.drop_ended(nothing_connected) : plan.stop_serving({GpuletId{1}});
    EXPECT_TRUE(plan.serving().empty());
    EXPECT_TRUE(plan.stand_ins().empty());
  }
}

TEST(ServingPlan, ProcessesBesideAreThoseOfTheSameInstance) {
  ServingPlan plan;
  const auto in_instance = [](std::uint32_t device, std::uint32_t first_slice) {
    schedule::PlannedGpulet made = part("a");
    made.device.device = device;
    made.instance.emplace();
    made.instance->start = first_slice;
    return made;
  };
  EXPECT_EQ(plan.processes_beside(part("a")).count, 1U);
  plan.adopt(GpuletId{3}, in_instance(0, 0));
  plan.adopt(GpuletId{2}, in_instance(0, 0));
  plan.adopt(GpuletId{1}, in_instance(0, 4));
  plan.adopt(GpuletId{4}, in_instance(1, 0));
  const ServingPlan::Processes processes = plan.processes_beside(in_instance(0, 0));
  EXPECT_EQ(processes.count, 2U);
  EXPECT_EQ(processes.first, GpuletId{2});
}

TEST(ServingPlan, RoutesCountHowOftenTheyWereSet) {
  ServingPlan plan;
  plan.set_routes({GpuletRoute{GpuletId{1}, BackendId{1}, {}, {}}});
  plan.set_routes({});
  EXPECT_TRUE(plan.routes().empty());
  EXPECT_EQ(plan.routes_revision(), 2U);
}

TEST(ServingPlan, AClearedPlanServesNothingAndKeepsItsEpoch) {
  ServingPlan plan;
  plan.advance(FrontendParts::plan_for("n0", {"a"}));
  plan.adopt(GpuletId{1}, part("a"));
  const Parts to_come = {{GpuletId{2}, part("b")}};
  plan.set_missing(wanted(to_come), {"c"});
  plan.set_routes({GpuletRoute{GpuletId{1}, BackendId{1}, {}, {}}});
  plan.clear();
  EXPECT_TRUE(plan.serving().empty() && plan.missing().empty() && plan.stand_ins().empty());
  EXPECT_TRUE(plan.lost_models().empty() && plan.routes().empty());
  EXPECT_TRUE(plan.plan().gpulets.empty());
  EXPECT_EQ(plan.epoch().value, 1U);
}

// Whatever begins, ends and is lost: only serving gpulets stand in, and no gpulet that serves its
// part of the plan is missing.
RC_GTEST_PROP(ServingPlanProperty, WhatServesIsNotMissing, ()) {
  constexpr std::uint64_t kGpulets = 5;
  ServingPlan plan;
  Parts to_come;
  const auto any_id = [] { return GpuletId{*rc::gen::inRange<std::uint64_t>(1, kGpulets + 1)}; };
  const int steps = *rc::gen::inRange(1, 40);
  for (int step = 0; step < steps; ++step) {
    const GpuletId id = any_id();
    switch (*rc::gen::inRange(0, 5)) {
      case 0: {
        to_come.clear();
        for (std::uint64_t one = 1; one <= kGpulets; ++one) {
          if (*rc::gen::arbitrary<bool>())
            to_come[GpuletId{one}] = part("a", *rc::gen::element(10.0, 20.0));
        }
        plan.set_missing(wanted(to_come), {});
        break;
      }
      case 1:
        plan.stop_serving({id});
        break;
      case 2:
        plan.lose(id);
        to_come.erase(id);
        break;
      case 3:
        if (to_come.contains(id)) plan.follow({{id}, {}}, wanted(to_come));
        break;
      default:
        if (!to_come.contains(id)) plan.follow({{}, {id}}, wanted(to_come));
        break;
    }
    for (const GpuletId one : plan.stand_ins()) RC_ASSERT(plan.serving().contains(one));
    for (const auto& [one, missing] : plan.missing()) {
      RC_ASSERT(to_come.at(one) == missing);
      const auto serves = plan.serving().find(one);
      RC_ASSERT(serves == plan.serving().end() ||
                (serves->second != missing && plan.stand_ins().contains(one)));
    }
    for (const auto& [one, serves] : plan.serving()) {
      const auto found = to_come.find(one);
      RC_ASSERT(plan.stand_ins().contains(one) ==
                (found == to_come.end() || found->second != serves));
    }
  }
}

}  // namespace
}  // namespace gpulet::serve::serving_plan_test
