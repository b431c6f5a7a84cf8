#include <gtest/gtest.h>

#include "tests/schedule/worked.h"

namespace gpulet::schedule {
namespace {

using testing::policy;
using testing::Worked;

Worked two_models(std::uint32_t devices) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}, {"b", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", devices);
  return worked;
}

TEST(ElasticPreprint, MergesIntoTheFirstGpuletThatCanShareAndRevertsTheSplit) {
  Worked worked = two_models(2);
  worked.input.demands = {{"a", 20, 200, 32}, {"b", 25, 200, 32}};
  const Plan plan = policy("elastic-preprint")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  ASSERT_EQ(plan.gpulets.size(), 1U);
  EXPECT_EQ(plan.gpulets[0].assignments.size(), 2U);
  EXPECT_EQ(plan.gpulets[0].size.percent, 20);
}

// 20 % serves 12 requests in 65 ms, 184.6 a second: a model of 30 joins one of 180 nowhere.
TEST(ElasticPreprint, TakesTheNextRemainingShareWhereNothingMerges) {
  Worked worked = two_models(1);
  worked.input.demands = {{"a", 170, 130, 32}, {"b", 30, 66, 32}};
  const Plan plan = policy("elastic-preprint")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(plan.gpulets.size(), 2U);
  EXPECT_EQ(plan.devices_used(), 1U);
}

TEST(ElasticPreprint, ServesPartOfWhatFitsNowhere) {
  Worked worked = two_models(1);
  worked.input.demands = {{"a", 900, 66, 32}, {"b", 400, 66, 32}};
  const Plan plan = policy("elastic-preprint")->plan(worked.input);
  EXPECT_FALSE(plan.schedulable());
  EXPECT_EQ(testing::violations(plan, worked.input), "");
  EXPECT_GT(testing::served(plan, "a"), 0);
}

}  // namespace
}  // namespace gpulet::schedule
