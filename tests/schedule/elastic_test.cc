#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/schedule/worked.h"

namespace gpulet::schedule {
namespace {

using testing::count_moves;
using testing::Moves;
using testing::policy;
using testing::violations;
using testing::Worked;

Worked worked_with(const std::vector<testing::ModelLatency>& models, std::uint32_t devices) {
  Worked worked;
  testing::add_profile(worked, "gpu", models);
  testing::add_devices(worked, "n0", "gpu", devices);
  return worked;
}

TEST(ElasticPartitioning, TakesTheSmallestSizeThatMeetsALowRate) {
  Worked worked = worked_with({{"a", 1, 1}}, 2);
  worked.input.demands = {{"a", 50, 200, 32}};
  const Plan plan = policy("elastic")->plan(worked.input);
  ASSERT_EQ(plan.gpulets.size(), 1U);
  EXPECT_EQ(plan.gpulets[0].size.percent, 20);
}

TEST(ElasticPartitioning, UsesSpareShareWhereARoundCannotHoldBursts) {
  Worked worked = worked_with({{"a", 1, 1}}, 2);
  worked.input.demands = {{"a", 50, 66, 32}};
  const Plan plan = policy("elastic")->plan(worked.input);
  ASSERT_EQ(plan.gpulets.size(), 1U);
  EXPECT_EQ(plan.gpulets[0].size.percent, 40);
}

// "big" meets its SLO on a whole device only, and leaves no time for "a" there.
TEST(ElasticPartitioning, UsesSpareShareBesideADeviceWithoutAny) {
  Worked worked = worked_with({{"a", 1, 1}, {"big", 9, 1}}, 2);
  worked.input.demands = {{"a", 50, 66, 32}, {"big", 50, 21, 32}};
  const Plan plan = policy("elastic")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  ASSERT_EQ(plan.gpulets.size(), 2U);
  EXPECT_EQ(plan.gpulets[0].assignments.front().model, "big");
  EXPECT_EQ(plan.gpulets[0].size, kWholeDevice);
  EXPECT_EQ(plan.gpulets[1].size.percent, 40);
}

// Two models with more than half of a device each do not fit on one as a whole.
TEST(ElasticPartitioning, FillsDevicesWhereModelsAreMany) {
  std::vector<testing::ModelLatency> models;
  models.reserve(40);
  for (int index = 0; index < 40; ++index)
    models.push_back({"net" + std::to_string(index), 2, 0.5});
  Worked worked = worked_with(models, 60);
  for (Device& device : worked.input.cluster.devices) device.sizes = {kWholeDevice};
  for (const testing::ModelLatency& model : models)
    worked.input.demands.push_back({model.name, 1000, 60, 32});
  const Plan plan = policy("elastic")->plan(worked.input);
  EXPECT_EQ(violations(plan, worked.input), "");
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(policy("sbp")->plan(worked.input).devices_used(), 40U);
  EXPECT_LE(plan.devices_used(), 30U);
}

TEST(ElasticPartitioning, MergesModelsThatCanTakeTurns) {
  Worked worked = worked_with({{"a", 1, 1}, {"b", 1, 1}}, 2);
  worked.input.demands = {{"a", 20, 200, 32}, {"b", 20, 200, 32}};
  const Plan plan = policy("elastic")->plan(worked.input);
  ASSERT_EQ(plan.gpulets.size(), 1U);
  EXPECT_EQ(plan.gpulets[0].assignments.size(), 2U);
}

// Whole devices that are busy for 0.7, 0.6 and 0.8 of their time have room for d, but not for each
// other.
TEST(ElasticPartitioning, MergesWithTheGpuletThatIsFullestAfterwards) {
  Worked worked = worked_with({{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}, {"d", 0, 0.1}}, 4);
  for (Device& device : worked.input.cluster.devices) {
    device.sizes = {{100}};
    device.max_partitions = 1;
  }
  worked.input.demands = {
      {"a", 350, 40, 1}, {"b", 300, 100, 1}, {"c", 400, 100, 1}, {"d", 1, 100'000, 1}};
  const Plan plan = policy("elastic")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(violations(plan, worked.input), "");
  ASSERT_EQ(plan.gpulets.size(), 3U);
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    const std::string& model = gpulet.assignments.front().model;
    EXPECT_EQ(gpulet.assignments.size(), model == "c" ? 2U : 1U) << model;
  }
}

TEST(ElasticPartitioning, DividesADeviceBetweenModelsThatCannotTakeTurns) {
  // Either alone fits half a device, but a round of both fits neither objective: 2 * (11 + 11) ms
  // at 50 %.
  Worked worked = worked_with({{"a", 10, 1}, {"b", 10, 1}}, 1);
  worked.input.demands = {{"a", 5, 45, 32}, {"b", 5, 45, 32}};
  for (Device& device : worked.input.cluster.devices) device.sizes = {{50}};
  const Plan plan = policy("elastic")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  ASSERT_EQ(plan.gpulets.size(), 2U);
  EXPECT_EQ(plan.devices_used(), 1U);
}

TEST(ElasticPartitioning, DividesADeviceIntoMaxPartitions) {
  Worked worked = worked_with({{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}, {"d", 1, 1}, {"e", 1, 1}}, 1);
  for (const char* name : {"a", "b", "c", "d", "e"})
    worked.input.demands.push_back({name, 160, 66, 32});
  worked.input.cluster.devices[0].max_partitions = 5;
  worked.input.cluster.devices[0].sizes = {{20}};
  const Plan plan = policy("elastic")->plan(worked.input);
  EXPECT_EQ(plan.gpulets.size(), 5U);
  worked.input.cluster.devices[0].max_partitions = 4;
  EXPECT_EQ(policy("elastic")->plan(worked.input).gpulets.size(), 4U);
}

TEST(ElasticPartitioning, ServesMoreThanWholeDevicesWhereShareHelpsLittle) {
  // Latency that hardly falls with the share: two halves serve almost twice what one whole device
  // does.
  Worked worked;
  profile::Profile& measured = (*worked.profiles)["gpu"];
  measured.name = "gpu";
  for (const char* name : {"a", "b"}) {
    std::vector<profile::LatencySample> samples;
    for (const int percent : {20, 40, 50, 60, 80, 100}) {
      for (const std::uint32_t batch : {1U, 32U}) {
        profile::LatencySample& sample = samples.emplace_back();
        sample.batch = batch;
        sample.share = Share{percent};
        sample.latency_ms = 10 + 0.3 * batch + 20.0 / percent;
      }
    }
    measured.models.emplace(
        name, profile::ModelProfile{profile::LatencyTable::create(samples).value(), {}, {}});
  }
  testing::add_devices(worked, "n0", "gpu", 1);
  worked.input.demands = {{"a", 1500, 60, 32}, {"b", 1500, 60, 32}};
  EXPECT_FALSE(policy("sbp")->plan(worked.input).schedulable());
  EXPECT_TRUE(policy("elastic")->plan(worked.input).schedulable());
}

TEST(ElasticPartitioning, UsesOneDeviceWhereOneIsEnough) {
  Worked worked = worked_with({{"a", 1, 1}, {"b", 1, 1}}, 8);
  worked.input.demands = {{"a", 300, 66, 32}, {"b", 300, 66, 32}};
  EXPECT_EQ(policy("elastic")->plan(worked.input).devices_used(), 1U);
}

TEST(ElasticPartitioning, RespectsTheMemoryOfADevice) {
  Worked worked = worked_with({{"a", 1, 1, 32, 600}, {"b", 1, 1, 32, 600}}, 2);
  for (Device& device : worked.input.cluster.devices) device.memory_mb = 1000;
  worked.input.demands = {{"a", 20, 200, 32}, {"b", 20, 200, 32}};
  const Plan plan = policy("elastic")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(plan.devices_used(), 2U);
  EXPECT_EQ(testing::violations(plan, worked.input), "");
}

TEST(ElasticPartitioning, SpreadsAModelOverDevicesOfDifferentTypes) {
  Worked worked;
  testing::add_profile(worked, "slow", {{"a", 1, 2}});
  testing::add_profile(worked, "fast", {{"a", 1, 1}});
  testing::add_devices(worked, "n0", "slow", 1);
  testing::add_devices(worked, "n1", "fast", 1);
  worked.input.demands = {{"a", 1400, 140, 32}};
  const Plan plan = policy("elastic")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(plan.devices_used(), 2U);
  EXPECT_EQ(testing::violations(plan, worked.input), "");
}

TEST(Elastic, KeepsTheOtherGpuletsWhenAModelComesAndGoes) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}, {"b", 2, 1}, {"visitor", 1, 2}});
  testing::add_devices(worked, "n0", "gpu", 3);
  worked.input.demands = {{"a", 500, 66, 32}, {"b", 300, 66, 32}};
  const Plan alone = policy("elastic")->plan(worked.input);
  worked.input.demands.push_back({"visitor", 150, 66, 32});
  worked.input.current = &alone;
  const Plan together = policy("elastic")->plan(worked.input);
  EXPECT_EQ(violations(together, worked.input), "");
  EXPECT_TRUE(together.schedulable());
  EXPECT_EQ(count_moves(alone, together), (Moves{alone.gpulets.size(), 1, 0}));
  worked.input.demands.pop_back();
  worked.input.current = &together;
  const Plan after = policy("elastic")->plan(worked.input);
  EXPECT_EQ(count_moves(together, after), (Moves{alone.gpulets.size(), 0, 1}));
}

TEST(Elastic, ReplansOneDeviceAndKeepsTheOthers) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}, {"d", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", 3);
  // a and b fill a device each; c takes 40 % of the third and d 60 %, and neither has time to
  // share.
  worked.input.demands = {
      {"a", 880, 20, 32}, {"b", 880, 20, 32}, {"c", 290, 20, 32}, {"d", 490, 20, 32}};
  const Plan before = policy("elastic")->plan(worked.input);
  ASSERT_TRUE(before.schedulable());
  worked.input.demands = {
      {"a", 880, 20, 32}, {"b", 880, 20, 32}, {"c", 490, 20, 32}, {"d", 290, 20, 32}};
  worked.input.current = &before;
  const Plan after = policy("elastic")->plan(worked.input);
  EXPECT_EQ(violations(after, worked.input), "");
  EXPECT_TRUE(after.schedulable());
  EXPECT_EQ(count_moves(before, after), (Moves{2, 2, 2}));
}

// 12 requests in 65 ms: 20 % serves 184.6 a second of either model, and no other size more per
// percent.
TEST(ElasticOnePass, LeavesWhatOnePassDoesNotPlace) {
  Worked worked = worked_with({{"a", 1, 1}, {"b", 1, 1}}, 1);
  worked.input.demands = {{"a", 900, 66, 32}, {"b", 400, 66, 32}};
  const Plan plan = policy("elastic-one-pass")->plan(worked.input);
  EXPECT_EQ(violations(plan, worked.input), "");
  EXPECT_FALSE(plan.schedulable());
}

TEST(ElasticOnePass, LeavesSpareShareAndPlansTheSameUnderAPlanInForce) {
  Worked worked = worked_with({{"a", 1, 1}}, 2);
  worked.input.demands = {{"a", 100, 130, 32}};
  const Plan whole = policy("sbp")->plan(worked.input);
  const Plan plan = policy("elastic-one-pass")->plan(worked.input);
  ASSERT_EQ(plan.gpulets.size(), 1U);
  EXPECT_EQ(plan.gpulets[0].size.percent, 20);
  worked.input.current = &whole;
  EXPECT_EQ(policy("elastic-one-pass")->plan(worked.input).gpulets, plan.gpulets);
}

TEST(ElasticPreprint, MergesIntoTheFirstGpuletThatCanShareAndRevertsTheSplit) {
  Worked worked = worked_with({{"a", 1, 1}, {"b", 1, 1}}, 2);
  worked.input.demands = {{"a", 20, 200, 32}, {"b", 25, 200, 32}};
  const Plan plan = policy("elastic-preprint")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  ASSERT_EQ(plan.gpulets.size(), 1U);
  EXPECT_EQ(plan.gpulets[0].assignments.size(), 2U);
  EXPECT_EQ(plan.gpulets[0].size.percent, 20);
}

// 20 % serves 12 requests in 65 ms, 184.6 a second: a model of 30 joins one of 180 nowhere.
TEST(ElasticPreprint, TakesTheNextRemainingShareWhereNothingMerges) {
  Worked worked = worked_with({{"a", 1, 1}, {"b", 1, 1}}, 1);
  worked.input.demands = {{"a", 170, 130, 32}, {"b", 30, 66, 32}};
  const Plan plan = policy("elastic-preprint")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(plan.gpulets.size(), 2U);
  EXPECT_EQ(plan.devices_used(), 1U);
}

TEST(ElasticPreprint, ServesPartOfARateThatFitsNowhere) {
  Worked worked = worked_with({{"a", 1, 1}, {"b", 1, 1}}, 1);
  worked.input.demands = {{"a", 900, 66, 32}, {"b", 400, 66, 32}};
  const Plan plan = policy("elastic-preprint")->plan(worked.input);
  EXPECT_FALSE(plan.schedulable());
  EXPECT_EQ(testing::violations(plan, worked.input), "");
  EXPECT_GT(testing::served(plan, "a"), 0);
}

}  // namespace
}  // namespace gpulet::schedule
