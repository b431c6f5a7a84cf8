// The baselines: static-equal, sbp and sbp-split, which share gpulets, and greedy-best-fit and
// guided-self-tuning, which do not.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/schedule/generated.h"

namespace gpulet::schedule {
namespace {

using testing::policy;
using testing::Worked;

RC_GTEST_PROP(SpatialBaselines, GiveEveryGpuletToOneModel, ()) {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>());
  const Worked worked = testing::generated(seed, 12);
  for (const char* name : {"greedy-best-fit", "guided-self-tuning"}) {
    for (const PlannedGpulet& gpulet : policy(name)->plan(worked.input).gpulets) {
      RC_ASSERT(gpulet.assignments.size() == 1U);
    }
  }
}

// (1 + batch) * 100 / percent ms. Within 400 ms every size fills a batch of 32 in at most 165 ms,
// so that its rate is proportional to it: 193.9, 387.9, 484.8, 581.8, 775.8 and 969.7 a second.
Worked proportional(std::uint32_t devices) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", devices);
  return worked;
}

TEST(StaticEqual, PutsEveryModelOnEveryDeviceWithEqualShares) {
  Worked worked = proportional(3);
  worked.input.demands = {{"a", 30, 400, 32}, {"b", 300, 400, 32}};
  const Plan plan = policy("static-equal")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  ASSERT_EQ(plan.gpulets.size(), 6U);
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    EXPECT_EQ(gpulet.size, Share{50});
    ASSERT_EQ(gpulet.assignments.size(), 1U);
    const Assignment& only = gpulet.assignments.front();
    EXPECT_DOUBLE_EQ(only.rate, only.model == "a" ? 10 : 100);
  }
}

// Two gpulets hold three models: the third shares the first one's.
TEST(StaticEqual, ModelsShareWhatADeviceHolds) {
  Worked worked = proportional(1);
  worked.input.demands = {{"a", 10, 400, 32}, {"b", 10, 400, 32}, {"c", 10, 400, 32}};
  const Plan plan = policy("static-equal")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  ASSERT_EQ(plan.gpulets.size(), 2U);
  EXPECT_EQ(plan.gpulets[0].assignments.size() + plan.gpulets[1].assignments.size(), 3U);
}

TEST(StaticEqual, DoesNotGiveABusyModelMore) {
  Worked worked = proportional(1);
  worked.input.demands = {{"a", 600, 400, 32}, {"b", 10, 400, 32}};  // 600 need 80 %
  EXPECT_FALSE(policy("static-equal")->plan(worked.input).schedulable());
  EXPECT_TRUE(policy("elastic")->plan(worked.input).schedulable());
}

TEST(GreedyBestFit, TakesTheSmallestSizeThatMeetsTheRateAndTheFullestDeviceThatHoldsIt) {
  Worked worked = proportional(3);
  worked.input.demands = {{"a", 480, 400, 32}, {"b", 570, 400, 32}, {"c", 380, 400, 32}};
  const Plan plan = policy("greedy-best-fit")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(plan.devices_used(), 2U);
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    const std::string& model = gpulet.assignments.front().model;
    // b takes 60 first, a 50 on another device, c 40 where that fills the device.
    EXPECT_EQ(gpulet.device.device, model == "a" ? 1U : 0U) << model;
  }
}

TEST(GreedyBestFit, SplitsARateBeyondAWholeDevice) {
  Worked worked = proportional(2);
  worked.input.demands = {{"a", 1150, 400, 32}};
  const Plan plan = policy("greedy-best-fit")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  ASSERT_EQ(plan.gpulets.size(), 2U);
  EXPECT_EQ(plan.gpulets[0].size, kWholeDevice);
}

// One device; a batch takes (1 + batch) * factor ms at each size.
Worked with_factors(const std::vector<std::pair<int, double>>& factors) {
  Worked worked;
  profile::Profile& measured = (*worked.profiles)["gpu"];
  measured.name = "gpu";
  for (const char* name : {"a", "b"}) {
    std::vector<profile::LatencySample> samples;
    for (const auto& [percent, factor] : factors) {
      for (const std::uint32_t batch : {1U, 32U}) {
        profile::LatencySample& sample = samples.emplace_back();
        sample.batch = batch;
        sample.share = Share{percent};
        sample.latency_ms = (1 + batch) * factor;
      }
    }
    measured.models.emplace(
        name, profile::ModelProfile{profile::LatencyTable::create(samples).value(), {}, {}});
  }
  testing::add_devices(worked, "n0", "gpu", 1);
  std::vector<Share>& sizes = worked.input.cluster.devices[0].sizes;
  sizes.clear();
  for (const auto& [percent, factor] : factors) sizes.push_back(Share{percent});
  return worked;
}

TEST(GuidedSelfTuning, TakesTheSameSizeForALowRateAsForAHighOne) {
  // No faster beyond 50 %.
  Worked worked = with_factors({{20, 2.5}, {40, 1.25}, {50, 1}, {60, 1}, {80, 1}, {100, 1}});
  for (const double rate : {1.0, 900.0}) {
    worked.input.demands = {{"a", rate, 400, 32}};
    const Plan plan = policy("guided-self-tuning")->plan(worked.input);
    EXPECT_TRUE(plan.schedulable());
    ASSERT_EQ(plan.gpulets.size(), 1U);
    EXPECT_EQ(plan.gpulets[0].size.percent, 50);
  }
}

TEST(GuidedSelfTuning, TakesASmallerShareWhereItsOwnIsNotAvailable) {
  Worked worked = with_factors({{40, 2}, {60, 1}});
  worked.input.demands = {{"a", 900, 400, 32}, {"b", 300, 400, 32}};
  const Plan plan = policy("guided-self-tuning")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  ASSERT_EQ(plan.gpulets.size(), 2U);
  EXPECT_EQ(plan.gpulets[1].size.percent, 40);
  EXPECT_EQ(plan.gpulets[1].assignments.front().model, "b");
}

// 32 requests take 33 ms: with an SLO of 66 ms one device serves 969.7 of them a second.
Worked two_models(double rate_a, double rate_b, std::uint32_t devices) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}, {"b", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", devices);
  worked.input.demands = {{"a", rate_a, 66, 32}, {"b", rate_b, 66, 32}};
  return worked;
}

TEST(SquishyBinPacking, UsesDevicesWholeOnly) {
  const Plan plan = policy("sbp")->plan(two_models(300, 700, 4).input);
  for (const PlannedGpulet& gpulet : plan.gpulets) EXPECT_EQ(gpulet.size, kWholeDevice);
}

TEST(SquishyBinPacking, SaturatesDevicesBeforeSharingThem) {
  const Plan plan = policy("sbp")->plan(two_models(2100, 300, 4).input);
  EXPECT_TRUE(plan.schedulable());
  ASSERT_EQ(plan.devices_used(), 3U);
  int saturated = 0;
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    if (gpulet.assignments.size() == 1) {
      ++saturated;
      EXPECT_NEAR(gpulet.assignments[0].rate, 32 / 0.033, 1e-6);
      EXPECT_EQ(gpulet.assignments[0].batch, 32U);
      EXPECT_NEAR(gpulet.duty_cycle_ms, 33, 1e-6);
    }
  }
  EXPECT_EQ(saturated, 2);
}

TEST(SquishyBinPacking, PlacesRestsOnOneDevice) {
  const Plan plan = policy("sbp")->plan(two_models(300, 300, 4).input);
  EXPECT_TRUE(plan.schedulable());
  ASSERT_EQ(plan.gpulets.size(), 1U);
  EXPECT_EQ(plan.gpulets[0].assignments.size(), 2U);
}

TEST(SquishyBinPacking, ServesPartOfARestThatFitsNowhere) {
  Worked worked = two_models(900, 900, 1);
  const Plan plan = policy("sbp")->plan(worked.input);
  EXPECT_FALSE(plan.schedulable());
  EXPECT_EQ(testing::violations(plan, worked.input), "");
  EXPECT_GE(testing::served(plan, "a") + testing::served(plan, "b"), 900);
}

TEST(SquishyBinPacking, PrefersTheDeviceTypeOnWhichAModelIsFaster) {
  Worked worked;
  testing::add_profile(worked, "slow", {{"a", 1, 4}});
  testing::add_profile(worked, "fast", {{"a", 1, 1}});
  testing::add_devices(worked, "n0", "slow", 1);
  testing::add_devices(worked, "n1", "fast", 1);
  worked.input.demands = {{"a", 100, 66, 32}};
  const Plan plan = policy("sbp")->plan(worked.input);
  ASSERT_EQ(plan.gpulets.size(), 1U);
  EXPECT_EQ(plan.gpulets[0].device.node, "n1");
}

TEST(SplitSquishyBinPacking, UsesTwoEqualPartsOfADevice) {
  Worked worked = two_models(480, 480, 4);
  const Plan plan = policy("sbp-split")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  for (const PlannedGpulet& gpulet : plan.gpulets) EXPECT_EQ(gpulet.size.percent, 50);
}

TEST(SplitSquishyBinPacking, FillsBothHalvesBeforeItOpensAnotherDevice) {
  // A half serves 15 requests in 32 ms: 468.75 a second.
  const Plan plan = policy("sbp-split")->plan(two_models(468, 468, 4).input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(plan.gpulets.size(), 2U);
  EXPECT_EQ(plan.devices_used(), 1U);
}

TEST(SplitSquishyBinPacking, TakesTheNearestHalfThatIsListed) {
  Worked worked = two_models(300, 300, 2);
  for (Device& device : worked.input.cluster.devices) device.sizes = {{20}, {40}, {60}, {100}};
  for (const PlannedGpulet& gpulet : policy("sbp-split")->plan(worked.input).gpulets) {
    EXPECT_EQ(gpulet.size.percent, 40);
  }
}

TEST(SplitSquishyBinPacking, UsesADeviceThatCannotBeSplitWhole) {
  Worked worked = two_models(300, 300, 2);
  worked.input.cluster.devices[0].sizes = {{60}, {100}};
  worked.input.cluster.devices[1].max_partitions = 1;
  for (const PlannedGpulet& gpulet : policy("sbp-split")->plan(worked.input).gpulets) {
    EXPECT_EQ(gpulet.size, kWholeDevice);
  }
}

}  // namespace
}  // namespace gpulet::schedule
