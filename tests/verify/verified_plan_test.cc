// Plans whose predictions keep the promise.
#include "gpulet/verify/verified_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/schedule/worked.h"
#include "tests/verify/made_up_world.h"

namespace gpulet::verify {
namespace {

using namespace schedule;  // NOLINT(google-build-using-namespace)
namespace testing = schedule::testing;
using testing::Worked;

double worst_of(const PredictedViolations& predicted) {
  double worst = 0;
  for (const auto& gpulet : predicted) {
    for (const auto& one : gpulet) worst = std::max(worst, one.value_or(0));
  }
  return worst;
}

Plan verified(std::string_view name, const PlanInput& input) {
  const std::unique_ptr<Policy> policy = testing::policy(name);
  Verifier verifier(input);
  const Planner planner{[&policy](const PlanInput& asked) { return policy->plan(asked); }, {}};
  return verified_plan(verifier, input, planner).plan;
}

struct Made : Worked {
  explicit Made(std::uint64_t number)
      : world(testing::made_up_world(
            number, {.most_models = 6, .most_devices = 4, .varies = true, .neighbours = false})) {
    input.cluster = world.cluster;
    input.demands = world.demands;
    input.profiles = world.profiles.get();
    input.options = {};
  }
  testing::MadeUpWorld world;
};

class MadeUpWorlds : public ::testing::TestWithParam<int> {};

TEST_P(MadeUpWorlds, WhatIsCalledServedIsPredictedToBe) {
  const Made made(static_cast<std::uint64_t>(GetParam()));
  for (const char* const name : {"elastic", "cover", "auto", "sbp", "greedy-best-fit"}) {
    const Plan plan = verified(name, made.input);
    EXPECT_EQ(testing::violations(plan, made.input), "") << name;
    if (!plan.schedulable()) continue;
    EXPECT_LE(worst_of(verified_violations(plan, made.input)), 2 * kMostPredictedLate) << name;
    EXPECT_LE(worst_of(verified_violations(plan, made.input, kMostPredictedLate)),
              kMostPredictedLate)
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Verified, MadeUpWorlds, ::testing::Range(1, 9));

// One model that may hardly wait for a second batch, and nearly fills its gpulet.
struct Tight : Worked {
  explicit Tight(std::uint32_t devices) {
    testing::add_profile(*this, "card", {{"a", 1.0, 0.25}});
    testing::add_devices(*this, "n0", "card", devices);
    input.options = {};
    input.demands = {{"a", 2450.0 * devices, 10.9, 32}};
    for (std::uint32_t device = 0; device < devices; ++device) {
      PlannedGpulet gpulet{{"n0", device}, Share{100}, 5.15, {}};
      gpulet.assignments = {{"a", 2450, 16, 5.15, 1, 10.9}};
      plan.gpulets.push_back(gpulet);
    }
  }
  Plan plan;
};

TEST(Verified, GpuletsOfOneModelShareItsQueue) {
  const Tight three(3);
  const double apart = worst_of(predict_violations(three.plan, three.input));
  ASSERT_GT(apart, 0.004);
  EXPECT_LT(worst_of(verified_violations(three.plan, three.input)), apart / 2);
}

TEST(Verified, ALimitShortensTheSimulationAndNotTheVerdict) {
  for (const double limit : {1e-4, 1e-3, 0.05}) {
    const Tight one(1);
    const bool beyond = worst_of(verified_violations(one.plan, one.input)) > limit;
    EXPECT_EQ(worst_of(verified_violations(one.plan, one.input, limit)) > limit, beyond) << limit;
  }
}

// What no rate that is added makes better is not promised.
TEST(Verified, ADemandThatNoPlanServesInTimeIsReported) {
  const Tight one(1);
  const Plan plan = verified("elastic", one.input);
  EXPECT_EQ(testing::violations(plan, one.input), "");
  if (plan.schedulable()) {
    EXPECT_LE(worst_of(verified_violations(plan, one.input)), 2 * kMostPredictedLate);
  } else {
    EXPECT_EQ(plan.unserved.front().model, "a");
  }
}

// Elastic partitioning; keeps what it was asked for.
struct Asked {
  Planner planner() {
    return {[this](const PlanInput& input) {
              demands.push_back(input.demands);
              return policy->plan(input);
            },
            [this] { return has_time; }};
  }
  std::unique_ptr<Policy> policy = testing::policy("elastic");
  std::vector<std::vector<ModelDemand>> demands{};
  bool has_time = true;
};

// A plan for it is late too often.
Tight late_by_chance() {
  Tight one(1);
  one.input.demands[0].rate = 2900;
  one.plan.gpulets[0].assignments[0].rate = 2900;
  return one;
}

Plan planned_late(const Plan& late, Asked& asked, const PlanInput& input) {
  Verifier verifier(input);
  Planner planner = asked.planner();
  const auto plan = planner.plan;
  planner.plan = [&](const PlanInput& one) {
    const bool first = asked.demands.empty();
    Plan made = plan(one);
    return first ? late : made;
  };
  return verified_plan(verifier, input, planner).plan;
}

TEST(Verified, AModelThatFindsNoPlaceKeepsTheOthersFromNothing) {
  Tight one = late_by_chance();
  ASSERT_FALSE(Verifier(one.input).late_models(one.plan).empty());
  one.input.demands.push_back({"unknown", 100, 66, 32});
  one.plan.unserved = {{"unknown", 100, "no profile knows it"}};
  Asked asked;
  const Plan plan = planned_late(one.plan, asked, one.input);
  ASSERT_GT(asked.demands.size(), 1U);
  for (std::size_t repair = 1; repair < asked.demands.size(); ++repair) {
    ASSERT_EQ(asked.demands[repair].size(), 1U);
    EXPECT_GT(asked.demands[repair][0].rate, asked.demands[repair - 1][0].rate);
  }
  const auto unknown = std::find_if(plan.unserved.begin(), plan.unserved.end(),
                                    [](const auto& model) { return model.model == "unknown"; });
  ASSERT_NE(unknown, plan.unserved.end());
  EXPECT_EQ(unknown->rate, 100);
}

TEST(Verified, AShortageIsSharedAgainOnce) {
  Tight one = late_by_chance();
  one.input.demands[0].rate = 5000;
  one.plan.unserved = {{"a", 2100, "its fair part of the devices is smaller"}};
  Asked asked;
  const Plan plan = planned_late(one.plan, asked, one.input);
  EXPECT_EQ(asked.demands.size(), 2U);
  EXPECT_FALSE(plan.schedulable());
}

TEST(Verified, WithoutTimeTheFirstPlanIsTaken) {
  Tight one = late_by_chance();
  Asked asked;
  asked.has_time = false;
  const Plan plan = planned_late(one.plan, asked, one.input);
  EXPECT_EQ(asked.demands.size(), 1U);
  ASSERT_EQ(plan.unserved.size(), 1U);
  EXPECT_EQ(plan.unserved[0].model, "a");
}

TEST(Verified, WhatIsLateIsUnserved) {
  Plan plan = Tight(1).plan;
  leave_out_late({{"a", {0.02, 0.03}}}, plan);
  ASSERT_EQ(plan.unserved.size(), 1U);
  EXPECT_DOUBLE_EQ(plan.unserved[0].rate, 2450 * 0.02);
  EXPECT_DOUBLE_EQ(plan.gpulets[0].assignments[0].rate, 2450 * 0.98);
}

}  // namespace
}  // namespace gpulet::verify
