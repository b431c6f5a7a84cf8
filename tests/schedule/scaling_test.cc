#include "gpulet/schedule/scaling.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <memory>
#include <string_view>

#include "gpulet/schedule/check.h"
#include "tests/schedule/generated.h"

namespace gpulet::schedule {
namespace {

using testing::count_moves;
using testing::Moves;
using testing::policy;
using testing::Worked;

// One device serves 969.7 requests a second.
Worked one_model(double rate, std::uint32_t devices) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", devices);
  worked.input.demands = {{"a", rate, 66, 32}};
  return worked;
}

TEST(Scaling, AddsDevicesUntilTheDemandIsServed) {
  const ScalingResult result = scale(*policy("sbp"), one_model(2500, 8).input);
  EXPECT_TRUE(result.plan.schedulable());
  EXPECT_EQ(result.devices, 3U);
  EXPECT_EQ(result.added, 3);
}

TEST(Scaling, ReportsUnservedDemandAtTheLimit) {
  Worked worked = one_model(2500, 8);
  worked.input.options.max_devices = 2;
  const ScalingResult result = scale(*policy("sbp"), worked.input);
  EXPECT_EQ(result.devices, 2U);
  ASSERT_EQ(result.plan.unserved.size(), 1U);
  EXPECT_NEAR(result.plan.unserved[0].rate, 2500 - 2 * 32 / 0.033, 1e-6);
}

TEST(Scaling, StartsFromTheDevicesOfThePlanInForce) {
  Worked worked = one_model(2500, 8);
  const Plan current = policy("sbp")->plan(worked.input);
  worked.input.current = &current;
  const ScalingResult result = scale(*policy("sbp"), worked.input);
  EXPECT_EQ(result.added, 0);
  EXPECT_EQ(result.plan, current);
  EXPECT_EQ(count_moves(current, result.plan), (Moves{3, 0, 0}));
}

TEST(Scaling, GivesDevicesBack) {
  Worked worked = one_model(900, 8);
  ScalingOptions options;
  options.in_use = 6;
  const ScalingResult result = scale(*policy("sbp"), worked.input, options);
  EXPECT_TRUE(result.plan.schedulable());
  EXPECT_EQ(result.devices, 2U);  // a tenth more than 900 needs two
  EXPECT_EQ(result.added, -4);
}

TEST(Scaling, KeepsADeviceThatSlightlyMoreDemandWouldNeed) {
  ScalingOptions options;
  options.in_use = 2;
  EXPECT_EQ(scale(*policy("sbp"), one_model(900, 8).input, options).devices, 2U);
  EXPECT_EQ(scale(*policy("sbp"), one_model(800, 8).input, options).devices, 1U);
  options.give_back_reserve = 1;
  EXPECT_EQ(scale(*policy("sbp"), one_model(900, 8).input, options).devices, 1U);
}

TEST(Scaling, NeverUsesFewerThanMinDevices) {
  ScalingOptions options;
  options.in_use = 5;
  options.min_devices = 3;
  EXPECT_EQ(scale(*policy("sbp"), one_model(0, 8).input, options).devices, 3U);
}

RC_GTEST_PROP(Scaling, PlansForTheDemandWithinItsDevices, ()) {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>());
  const Worked worked = testing::generated(seed, 6);
  ScalingOptions options;
  options.in_use = *rc::gen::inRange<std::uint32_t>(0, 10);
  const auto there = static_cast<std::uint32_t>(worked.input.cluster.devices.size());
  const std::uint32_t limit = std::min(there, worked.input.options.max_devices.value_or(there));
  for (const char* name : {"elastic", "sbp-split"}) {
    const ScalingResult result = scale(*policy(name), worked.input, options);
    RC_ASSERT(check(result.plan, worked.input).empty());
    RC_ASSERT(result.plan.devices_used() <= result.devices);
    RC_ASSERT(result.devices <= limit);
    RC_ASSERT(result.plan.schedulable() || result.devices == limit);
  }
}

// 969.7 requests a second on a device alone, so a millisecond of device time each.
TEST(Shortage, ReducesOnlyDemandsAboveTheirFairPart) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", 3);
  worked.input.demands = {{"a", 10000, 66, 32}, {"b", 10000, 66, 32}, {"c", 100, 66, 32}};
  const auto elastic = policy("elastic");
  const Plan plan = share_shortage(*elastic, worked.input, elastic->plan(worked.input));
  EXPECT_EQ(testing::violations(plan, worked.input), "");
  EXPECT_DOUBLE_EQ(testing::served(plan, "c"), 100);
  EXPECT_GT(testing::served(plan, "a"), 1200);
  EXPECT_NEAR(testing::served(plan, "a"), testing::served(plan, "b"), 1);
}

TEST(Shortage, LeavesOutModelsThatNoDeviceServes) {
  Worked worked = one_model(5000, 2);
  worked.input.demands.push_back({"unknown", 100, 66, 32});
  const Plan whole = policy("elastic")->plan(worked.input);
  const Plan plan = share_shortage(*policy("elastic"), worked.input, whole);
  EXPECT_EQ(testing::violations(plan, worked.input), "");
  EXPECT_GT(testing::served(plan, "a"), 1900);
  ASSERT_EQ(plan.unserved.size(), 2U);
  EXPECT_EQ(plan.unserved[1].reason, whole.unserved[1].reason);
}

// Elastic partitioning, which adds up the budgets of its plans.
class CountsBudgets : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return elastic_->name(); }
  [[nodiscard]] Plan plan(const PlanInput& input) const override {
    const bool searches = input.options.max_devices.value_or(1) > 0;
    if (searches) spent_ms += input.options.budget_ms;
    return elastic_->plan(input);
  }

  mutable double spent_ms = 0;

 private:
  std::unique_ptr<Policy> elastic_ = policy("elastic");
};

TEST(Shortage, ItsPlansShareTheBudget) {
  Worked worked = one_model(5000, 1);
  worked.input.options.budget_ms = 120;
  const CountsBudgets counting;
  const Plan whole = policy("elastic")->plan(worked.input);
  const Plan shared = share_shortage(counting, worked.input, whole);
  EXPECT_GT(testing::served(shared, "a"), 900);
  EXPECT_GT(counting.spent_ms, 0);
  EXPECT_LE(counting.spent_ms, 120 * (1 + 1e-9));
}

TEST(Scaling, ItsPlansShareTheBudget) {
  Worked worked = one_model(5000, 12);
  worked.input.options.budget_ms = 120;
  const CountsBudgets counting;
  EXPECT_TRUE(scale(counting, worked.input).plan.schedulable());
  EXPECT_GT(counting.spent_ms, 0);
  EXPECT_LE(counting.spent_ms, 120 * (1 + 1e-9));
}

RC_GTEST_PROP(Shortage, MakesPlansThatPassTheCheck, ()) {
  const Worked worked = testing::any_input();
  for (const char* name : {"elastic", "sbp-split"}) {
    const Plan whole = policy(name)->plan(worked.input);
    const Plan plan = share_shortage(*policy(name), worked.input, whole);
    RC_ASSERT(check(plan, worked.input).empty());
    if (whole.schedulable()) RC_ASSERT(plan == whole);
  }
}

TEST(Moves, CountsCreatedAndRetiredGpulets) {
  Worked worked = one_model(2500, 8);
  const Plan current = policy("sbp")->plan(worked.input);
  worked.input.demands[0].rate = 1000;
  worked.input.current = &current;
  const Plan next = policy("sbp")->plan(worked.input);
  EXPECT_EQ(count_moves(current, next), (Moves{2, 0, 1}));
  EXPECT_EQ(count_moves(Plan(), current), (Moves{0, 3, 0}));
  EXPECT_EQ(count_moves(current, Plan()), (Moves{0, 0, 3}));
}

}  // namespace
}  // namespace gpulet::schedule
