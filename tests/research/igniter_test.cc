#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <memory>
#include <string>

#include "tests/schedule/generated.h"

namespace gpulet::schedule::igniter_test {
namespace {

using testing::policy;
using testing::Worked;

RC_GTEST_PROP(Igniter, GivesEveryGpuletToOneModel, ()) {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>());
  const Worked worked = testing::generated(seed, 12);
  for (const PlannedGpulet& gpulet : policy("igniter")->plan(worked.input).gpulets)
    RC_ASSERT(gpulet.assignments.size() == 1U);
}

// (1 + batch) * 100 / percent ms. Within 400 ms every size fills a batch of 32 in at most 165 ms,
// so that its rate is proportional to it: 193.9, 387.9, 484.8, 581.8, 775.8 and 969.7 a second.
Worked proportional(std::uint32_t devices) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", devices);
  return worked;
}

// The proportional models with slowdowns of a by c of 1.5 and of anyone by b of 1.1 at any batches.
Worked with_neighbours(std::uint32_t devices) {
  Worked worked = proportional(devices);
  profile::Profile& measured = worked.profiles->at("gpu");
  const auto add = [&](const std::string& model, const std::string& other, double slowdown) {
    const double alone_ms = measured.find(model)->latency.latency_ms(32, Share{40}).value();
    measured.pairs.push_back({model, 32, Share{40}, other, 32, Share{40}, alone_ms * slowdown});
  };
  add("a", "c", 1.5);
  add("a", "b", 1.1);
  add("c", "b", 1.1);
  worked.interference = std::make_unique<profile::InterferenceSet>();
  worked.interference->emplace(
      "gpu",
      profile::InterferenceModel::create(measured, profile::InterferenceKind::measured).value());
  worked.input.interference = worked.interference.get();
  for (Device& device : worked.input.cluster.devices) device.max_partitions = 3;
  return worked;
}

// "50 on 1", of the model's first gpulet.
std::string where(const Plan& plan, const std::string& model) {
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    if (gpulet.assignments.front().model != model) continue;
    return std::to_string(gpulet.size.percent) + " on " + std::to_string(gpulet.device.device);
  }
  return "nowhere";
}

TEST(Igniter, GrowsGpuletsThatAreSlowedDown) {
  Worked worked = with_neighbours(2);
  // Alone a needs 40; beside b 50.
  worked.input.demands = {{"a", 380, 400, 32}, {"b", 480, 400, 32}};
  const Plan plan = policy("igniter")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(where(plan, "a"), "50 on 0");
  EXPECT_EQ(where(plan, "b"), "50 on 0");
}

TEST(Igniter, TakesTheDeviceThatGrowsTheLeast) {
  Worked worked = with_neighbours(3);
  // Beside b c takes 20 more than alone; beside c a would take 30 more.
  worked.input.demands = {{"a", 480, 400, 32}, {"b", 570, 400, 32}, {"c", 180, 400, 32}};
  const Plan plan = policy("igniter")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(where(plan, "b"), "60 on 0");
  EXPECT_EQ(where(plan, "c"), "40 on 0");
}

TEST(Igniter, SplitsARateBeyondAWholeDevice) {
  Worked worked = proportional(2);
  worked.input.demands = {{"a", 1150, 400, 32}};
  const Plan plan = policy("igniter")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  ASSERT_EQ(plan.gpulets.size(), 2U);
  EXPECT_EQ(plan.gpulets[0].size, kWholeDevice);
}

}  // namespace
}  // namespace gpulet::schedule::igniter_test
