#include "gpulet/schedule/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/schedule/generated.h"
#include "tests/support/names.h"

namespace gpulet::schedule::explanation_test {
namespace {

using support::names;
using testing::policy;
using testing::Worked;

// One device serves 969.7 requests a second of a.
Worked one_model(double rate, std::uint32_t devices) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", devices);
  worked.input.demands = {{"a", rate, 66, 32}};
  return worked;
}

Plan plan_of_one(int percent, double rate) {
  Plan plan;
  plan.gpulets.push_back({{"n0", 0}, Share{percent}, 20, {{"a", rate, 4, 10, 1, 66}}});
  return plan;
}

TEST(Explanation, NamesTheSmallestSizeThatServesTheRate) {
  const Worked worked = one_model(300, 2);
  const Explanation explanation = explain(plan_of_one(40, 300), worked.input);
  ASSERT_EQ(explanation.gpulets.size(), 1U);
  EXPECT_TRUE(names(explanation.gpulets[0], "40 %", "300 requests/s"));
  EXPECT_TRUE(names(explanation.gpulets[0], "60 %"));
}

TEST(Explanation, NamesTheRateOfASmallerSizeWhereTheSizeExceedsTheNeed) {
  const Worked worked = one_model(100, 2);
  EXPECT_TRUE(names(explain(plan_of_one(60, 100), worked.input).gpulets[0], "100", "50 %"));
}

TEST(Explanation, NamesModelsWhoseLatenciesAreEstimated) {
  Worked worked = one_model(300, 2);
  const std::string measured = explain(plan_of_one(40, 300), worked.input).gpulets.at(0);
  worked.profiles->at("gpu").models.at("a").estimate = profile::EstimateSource{"b", 2};
  const std::string estimated = explain(plan_of_one(40, 300), worked.input).gpulets.at(0);
  EXPECT_TRUE(names(estimated, measured));
  EXPECT_GT(estimated.size(), measured.size());
}

TEST(Explanation, DescribesTheRoundOfModelsThatShare) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}, {"b", 2, 1}});
  testing::add_devices(worked, "n0", "gpu", 1);
  worked.input.demands = {{"a", 100, 66, 32}, {"b", 100, 66, 32}};
  Plan plan;
  plan.gpulets.push_back(
      {{"n0", 0}, Share{50}, 20, {{"a", 100, 2, 6, 1, 66}, {"b", 100, 2, 8, 1, 66}}});
  EXPECT_TRUE(names(explain(plan, worked.input).gpulets[0], "a and b", "14 ms", "20 ms"));
}

TEST(Explanation, NamesNeighboursAndTheirSlowdown) {
  const Worked worked = one_model(300, 1);
  Plan plan = plan_of_one(40, 150);
  plan.gpulets.push_back({{"n0", 0}, Share{60}, 20, {{"a", 150, 4, 10, 1.25, 66}}});
  const Explanation explanation = explain(plan, worked.input);
  EXPECT_TRUE(names(explanation.gpulets[0], "a (60 %)"));
  EXPECT_TRUE(names(explanation.gpulets[1], "25 %"));
}

TEST(Explanation, NamesGpuletsThatStay) {
  Worked worked = one_model(300, 1);
  const Plan plan = plan_of_one(40, 300);
  const std::string placed = explain(plan, worked.input).gpulets[0];
  worked.input.current = &plan;
  EXPECT_NE(explain(plan, worked.input).gpulets[0], placed);
}

TEST(Explanation, ReportsMissingDevicesOfAFullCluster) {
  const Worked worked = one_model(2500, 1);
  const Plan plan = policy("sbp")->plan(worked.input);
  const Explanation explanation = explain(plan, worked.input);
  ASSERT_EQ(explanation.missing.size(), 1U);
  EXPECT_EQ(explanation.missing[0].model, "a");
  EXPECT_EQ(explanation.missing[0].cause, UnservedCause::devices);
  EXPECT_NEAR(explanation.missing[0].devices, (2500 - 32 / 0.033) / (32 / 0.033), 1e-6);
}

TEST(Explanation, ReportsCausesOtherThanMissingDevices) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"large", 1, 1, 32, 50000}, {"slow", 10, 1}});
  testing::add_devices(worked, "n0", "gpu", 1);
  worked.input.cluster.devices[0].memory_mb = 16000;
  worked.input.demands = {{"large", 10, 66, 32}, {"slow", 10, 12, 32}, {"unknown", 10, 66, 32}};
  const Plan plan = policy("sbp")->plan(worked.input);
  const Explanation explanation = explain(plan, worked.input);
  ASSERT_EQ(explanation.missing.size(), 3U);
  EXPECT_EQ(explanation.missing[0].cause, UnservedCause::memory);
  EXPECT_EQ(explanation.missing[0].memory_mb, 50000);
  EXPECT_EQ(explanation.missing[1].cause, UnservedCause::latency);
  EXPECT_NEAR(explanation.missing[1].least_slo_ms, 22, 1e-9);
  EXPECT_EQ(explanation.missing[2].cause, UnservedCause::profile);
}

RC_GTEST_PROP(Explanation, ExplainsEveryGpuletAndEveryUnservedRate, ()) {
  const Worked worked = testing::any_input();
  const std::string name(*rc::gen::elementOf(testing::policy_names()));
  const Plan plan = policy(name)->plan(worked.input);
  const Explanation explanation = explain(plan, worked.input);
  RC_ASSERT(explanation.gpulets.size() == plan.gpulets.size());
  for (const std::string& why : explanation.gpulets) RC_ASSERT(!why.empty());
  RC_ASSERT(explanation.missing.size() == plan.unserved.size());
  for (std::size_t i = 0; i < plan.unserved.size(); ++i)
    RC_ASSERT(explanation.missing[i].model == plan.unserved[i].model);
}

}  // namespace
}  // namespace gpulet::schedule::explanation_test
