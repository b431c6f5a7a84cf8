// The predicted violations of plans. tests/simulate/prediction_test.cc holds them against
// simulations.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <optional>

#include "gpulet/schedule/explanation.h"
#include "tests/schedule/generated.h"
#include "tests/schedule/worked.h"

namespace gpulet::schedule::prediction_test {
namespace {

using testing::Worked;

// Two models in one gpulet of 60 %, another beside them at 40 %.
struct Three : Worked {
  Three() {
    input.options.headroom = Headroom::poisson;
    input.options.margin = 1.03;
    testing::add_profile(*this, "card", {{"a", 2, 0.25}, {"b", 1, 0.2}, {"c", 1, 0.1}});
    testing::add_devices(*this, "n0", "card", 1);
    input.demands = {{"a", 300, 60, 32}, {"b", 300, 50, 32}, {"c", 300, 30, 32}};
    PlannedGpulet both{{"n0", 0}, Share{60}, 22, {}};
    both.assignments = {{"a", 300, 16, 6 / 0.6 * 1.03, 1, 60}, {"b", 300, 16, 4.2 / 0.6, 1, 50}};
    PlannedGpulet alone{{"n0", 0}, Share{40}, 6.5, {}};
    alone.assignments = {{"c", 300, 16, 2.6 / 0.4 * 1.03, 1, 30}};
    plan.gpulets = {both, alone};
  }
  Plan plan;
};

TEST(Prediction, IsSmallAtLowRatesAndLargeBeyondTheCapacity) {
  Three three;
  for (PlannedGpulet& gpulet : three.plan.gpulets) {
    for (Assignment& one : gpulet.assignments) one.rate = 50;
  }
  for (const auto& gpulet : predict_violations(three.plan, three.input)) {
    for (const auto& late : gpulet) EXPECT_LT(late.value(), 1e-3);
  }
  for (PlannedGpulet& gpulet : three.plan.gpulets) {
    for (Assignment& one : gpulet.assignments) one.rate = 5000;
  }
  for (const auto& gpulet : predict_violations(three.plan, three.input)) {
    for (const auto& late : gpulet) EXPECT_GT(late.value(), 0.3);
  }
}

TEST(Prediction, IsEmptyWhereAPlanPromisesNothingOrAProfileIsMissing) {
  Three three;
  three.plan.gpulets[1].service = Service::by_need;
  three.plan.gpulets[0].assignments[1].model = "unknown";
  const PredictedViolations predicted = predict_violations(three.plan, three.input);
  EXPECT_TRUE(predicted[0][0].has_value());
  EXPECT_FALSE(predicted[0][1].has_value());
  EXPECT_FALSE(predicted[1][0].has_value());
  three.plan.gpulets[0].device.node = "gone";
  EXPECT_FALSE(predict_violations(three.plan, three.input)[0][0].has_value());
}

RC_GTEST_PROP(Prediction, RisesWithTheRates, ()) {
  Three three;
  for (PlannedGpulet& gpulet : three.plan.gpulets) {
    for (Assignment& one : gpulet.assignments) one.rate = *rc::gen::inRange(50, 1500);
  }
  const PredictedViolations before = predict_violations(three.plan, three.input);
  for (PlannedGpulet& gpulet : three.plan.gpulets) {
    for (Assignment& one : gpulet.assignments) one.rate *= 1.1;
  }
  const PredictedViolations after = predict_violations(three.plan, three.input);
  for (std::size_t gpulet = 0; gpulet < before.size(); ++gpulet) {
    for (std::size_t one = 0; one < before[gpulet].size(); ++one)
      RC_ASSERT(after[gpulet][one].value() >= before[gpulet][one].value() * 0.98 - 1e-6);
  }
}

RC_GTEST_PROP(Prediction, IsAFractionForEveryAssignmentOfARound, ()) {
  const Worked worked = testing::any_input();
  const Plan plan = testing::policy("elastic")->plan(worked.input);
  const PredictedViolations predicted = predict_violations(plan, worked.input);
  RC_ASSERT(predicted.size() == plan.gpulets.size());
  for (std::size_t gpulet = 0; gpulet < predicted.size(); ++gpulet) {
    RC_ASSERT(predicted[gpulet].size() == plan.gpulets[gpulet].assignments.size());
    for (const std::optional<double>& late : predicted[gpulet])
      RC_ASSERT(late.value() >= 0 && late.value() <= 1);
  }
}

}  // namespace
}  // namespace gpulet::schedule::prediction_test
