#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "gpulet/schedule/check.h"
#include "gpulet/schedule/explanation.h"
#include "gpulet/schedule/scaling.h"
#include "tests/schedule/generated.h"
#include "tests/support/names.h"

namespace gpulet::schedule::spare_test {
namespace {

using testing::policy;
using testing::Worked;

// One request of a takes 8 ms on a whole device and 40 ms on a fifth of it.
Worked two_models(double rate_a, double rate_b, std::uint32_t devices = 1) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 7, 1}, {"b", 7, 1}});
  testing::add_devices(worked, "n0", "gpu", devices);
  if (rate_a > 0) worked.input.demands.push_back({"a", rate_a, 100, 32});
  if (rate_b > 0) worked.input.demands.push_back({"b", rate_b, 100, 32});
  return worked;
}

// The next plan with and without spare share, with `current` in force.
struct Planned {
  Plan without;
  Plan with;
};
Planned planned(Worked& worked, const Plan* current, std::string_view name = "elastic") {
  Plan before;
  if (current != nullptr) before = without_spare(*current);
  worked.input.current = current == nullptr ? nullptr : &before;
  Planned made;
  made.without = policy(name)->plan(worked.input);
  worked.input.current = current;
  made.with = use_spare(worked.input, made.without);
  return made;
}

std::vector<int> sizes_of(const Plan& plan) {
  std::vector<int> sizes;
  for (const PlannedGpulet& gpulet : plan.gpulets) sizes.push_back(gpulet.size.percent);
  return sizes;
}

TEST(Spare, GivesAModelOfALowRateTheWholeDevice) {
  Worked worked = two_models(5, 0);
  const Planned made = planned(worked, nullptr);
  EXPECT_EQ(sizes_of(made.without), std::vector<int>{20});
  EXPECT_EQ(sizes_of(made.with), std::vector<int>{100});
  EXPECT_EQ(testing::violations(made.with, worked.input), "");
  EXPECT_EQ(made.with.gpulets[0].assignments[0].latency_ms, 8);
  EXPECT_EQ(policy_size(made.with.gpulets[0]), Share{20});
  EXPECT_EQ(without_spare(made.with), made.without);
}

TEST(Spare, DividesItBetweenGpulets) {
  Worked worked = two_models(5, 5);
  worked.input.demands[0].alone = true;
  const Planned made = planned(worked, nullptr);
  EXPECT_EQ(testing::violations(made.with, worked.input), "");
  EXPECT_EQ(sizes_of(made.with), (std::vector<int>{50, 50}));
}

TEST(Spare, GoesBackToAGpuletThatNeedsIt) {
  Worked worked = two_models(5, 0);
  const Plan first = planned(worked, nullptr).with;
  Worked more = two_models(5, 50);
  more.input.demands[0].alone = true;
  const Planned second = planned(more, &first);
  EXPECT_EQ(testing::violations(second.with, more.input), "");
  EXPECT_TRUE(second.with.schedulable());
  EXPECT_EQ(second.with.devices_used(), 1U);
  EXPECT_LT(second.with.gpulets[0].size, Share{100});
}

TEST(Spare, LeavesTheSizeOfAGpuletThatRuns) {
  Worked worked = two_models(5, 0);
  const Plan first = planned(worked, nullptr).with;
  for (const double rate : {4.0, 6.0, 12.0}) {
    Worked changed = two_models(rate, 0);
    const Plan second = planned(changed, &first).with;
    EXPECT_EQ(testing::violations(second, changed.input), "");
    EXPECT_EQ(sizes_of(second), std::vector<int>{100});
  }
}

// 20 % serve 60 requests/s.
TEST(Spare, LetsAGpuletGrowIntoTheShareThatItHas) {
  Worked worked = two_models(5, 0);
  const Plan first = planned(worked, nullptr).with;
  Worked more = two_models(100, 0);
  more.input.current = &first;
  const Plan grown = with_grown_needs(more.input);
  ASSERT_EQ(grown.gpulets.size(), 1U);
  EXPECT_GT(grown.gpulets[0].size, Share{20});
  EXPECT_LT(grown.gpulets[0].size, Share{100});
  more.input.current = &grown;
  const Plan plan = policy("elastic")->plan(more.input);
  more.input.current = &first;
  const Plan second = use_spare(more.input, plan);
  EXPECT_TRUE(second.schedulable());
  EXPECT_EQ(testing::violations(second, more.input), "");
  EXPECT_EQ(sizes_of(second), std::vector<int>{100});
}

TEST(Spare, OpensNoDevice) {
  Worked worked = two_models(5, 5, 4);
  const Planned made = planned(worked, nullptr);
  EXPECT_EQ(made.with.devices_used(), made.without.devices_used());
}

TEST(Spare, LeavesSizesThatAreNoFaster) {
  Worked worked;
  testing::add_devices(worked, "n0", "gpu", 1);
  profile::Profile& flat = (*worked.profiles)["gpu"];
  flat.name = "gpu";
  std::vector<profile::LatencySample> samples;
  for (const int percent : {20, 40, 50, 60, 80, 100}) {
    for (const std::uint32_t batch : {1U, 8U})
      samples.push_back({batch, Share{percent}, 10.0 + batch});
  }
  flat.models.emplace(
      "a", profile::ModelProfile{profile::LatencyTable::create(samples).value(), {}, {}});
  worked.input.demands = {{"a", 5, 100, 8}};
  EXPECT_EQ(sizes_of(planned(worked, nullptr).with), std::vector<int>{20});
}

TEST(Spare, IsCheckedTogetherWithWhatThePolicyChose) {
  Worked worked = two_models(5, 0);
  const Plan valid = planned(worked, nullptr).with;
  EXPECT_EQ(testing::violations(valid, worked.input), "");
  Plan unlisted = valid;
  unlisted.gpulets[0].policy_choice->size = Share{30};
  EXPECT_NE(testing::violations(unlisted, worked.input), "");
  Plan incomplete = valid;
  incomplete.gpulets[0].policy_choice->assignments.clear();
  EXPECT_NE(testing::violations(incomplete, worked.input), "");
}

TEST(Spare, IsExplained) {
  Worked worked = two_models(5, 0);
  const std::string why = explain(planned(worked, nullptr).with, worked.input).gpulets.at(0);
  EXPECT_TRUE(support::names(why, "20 %", "16 ms", "90"));
}

// ---- properties

// The exhaustive search is slow, and its plans are like those of the others.
std::vector<std::string_view> policies() {
  std::vector<std::string_view> names = testing::policy_names();
  std::erase(names, "ideal");
  return names;
}

RC_GTEST_PROP(Spare, ServesTheSameAndKeepsTheRules, ()) {
  Worked worked = testing::any_input();
  for (const std::string_view name : policies()) {
    const Planned made = planned(worked, nullptr, name);
    RC_LOG() << name << "\n" << testing::violations(made.with, worked.input);
    RC_ASSERT(check(made.with, worked.input).empty());
    RC_ASSERT(without_spare(made.with) == made.without);
    RC_ASSERT(made.with.unserved == made.without.unserved);
    RC_ASSERT(made.with.devices_used() == made.without.devices_used());
  }
}

double longest_part_of_slo(const Plan& plan, const DeviceKey& device) {
  double longest = 0;
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    if (gpulet.device != device) continue;
    for (const Assignment& one : gpulet.assignments)
      longest = std::max(longest, (gpulet.duty_cycle_ms + one.latency_ms) / one.slo_ms);
  }
  return longest;
}

// A round that holds larger bursts may be longer, so single devices make exceptions.
TEST(Spare, ShortensTheLongestTimesOfMostDevices) {
  std::size_t shorter = 0;
  std::size_t longer = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Worked worked = testing::generated(seed, 8);
    const Planned made = planned(worked, nullptr);
    for (const Device& device : worked.input.cluster.devices) {
      const double before = longest_part_of_slo(made.without, device.key);
      const double after = longest_part_of_slo(made.with, device.key);
      if (after < before * 0.9) ++shorter;
      if (after > before * 1.0001) ++longer;
    }
  }
  EXPECT_GT(shorter, 20U);
  EXPECT_LT(longer * 10, shorter);
}

// `auto` goes on searching from the plan in force, and may find one with fewer devices.
RC_GTEST_PROP(Spare, RepeatsThePlanInForceOrABetterOne, ()) {
  Worked worked = testing::any_input();
  for (const std::string_view name : policies()) {
    const Plan first = planned(worked, nullptr, name).with;
    const Plan second = planned(worked, &first, name).with;
    RC_LOG() << name << "\n";
    RC_ASSERT(second == first || serves_better(second, first));
  }
}

RC_GTEST_PROP(Spare, StaysCorrectWithAnyPlanInForce, ()) {
  Worked worked = testing::any_input();
  const auto scale = *rc::gen::inRange(0, 300);
  for (const std::string_view name : policies()) {
    const Plan before = planned(worked, nullptr, name).with;
    Worked after = worked.input.demands.empty() ? Worked() : testing::any_input();
    const Planned other = planned(after, &before, name);
    RC_LOG() << name << "\n" << testing::violations(other.with, after.input);
    RC_ASSERT(check(other.with, after.input).empty());
    const std::vector<ModelDemand> demands = worked.input.demands;
    for (ModelDemand& demand : worked.input.demands) demand.rate *= scale / 100.0;
    const Planned made = planned(worked, &before, name);
    RC_LOG() << name << "\n" << testing::violations(made.with, worked.input);
    RC_ASSERT(check(made.with, worked.input).empty());
    RC_ASSERT(without_spare(made.with) == made.without);
    worked.input.demands = demands;
  }
}

}  // namespace
}  // namespace gpulet::schedule::spare_test
