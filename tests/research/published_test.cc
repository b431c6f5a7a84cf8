// The algorithms of gpulet's authors, as printed and as shipped.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/schedule/check.h"
#include "tests/schedule/generated.h"

namespace gpulet::schedule::published_test {
namespace {

using testing::policy;
using testing::Worked;

constexpr std::array<std::string_view, 5> kPublished{"elastic-preprint-published",
                                                     "elastic-published", "elastic-shipped",
                                                     "ideal-published", "sbp-shipped"};

// Those that a plan of these policies must not have.
std::string structural_violations(const Plan& plan, const PlanInput& input) {
  std::string text;
  for (const Violation& violation : check(plan, input)) {
    if (!is_about_time(violation.cause)) text += to_string(violation) + "\n";
  }
  return text;
}

RC_GTEST_PROP(Published, PlansKeepEveryRuleThatIsNotAboutTime, ()) {
  const Worked worked = testing::any_input();
  const std::string_view name = *rc::gen::elementOf(kPublished);
  const Plan plan = policy(name)->plan(worked.input);
  RC_ASSERT(structural_violations(plan, worked.input) == "");
  RC_ASSERT(policy(name)->plan(worked.input) == plan);
}

// Without neighbours, random arrivals and the slacks of the program, the authors' rules are ours.
RC_GTEST_PROP(Published, PrintedPlansKeepAllRulesWithoutNeighbours, ()) {
  Worked worked = testing::any_input();
  worked.input.interference = nullptr;
  worked.input.options.headroom = Headroom::none;
  for (const std::string_view name :
       {"elastic-published", "elastic-preprint-published", "ideal-published"})
    RC_ASSERT(testing::violations(policy(name)->plan(worked.input), worked.input) == "");
}

RC_GTEST_PROP(Published, SbpShippedDividesNoDevice, ()) {
  const Worked worked = testing::any_input();
  std::map<DeviceKey, int> gpulets;
  for (const PlannedGpulet& gpulet : policy("sbp-shipped")->plan(worked.input).gpulets)
    RC_ASSERT(++gpulets[gpulet.device] == 1);
}

// (1 + batch) * 100 / percent ms: within 66 ms the whole device runs batches of 32 in 33 ms.
Worked proportional(std::uint32_t devices) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", devices);
  worked.input.options.headroom = Headroom::none;
  worked.input.options.margin = 1;
  return worked;
}

// The same where b slows a down by that factor, whatever the batches and sizes, and nobody else.
Worked with_slowdown_of_a(std::uint32_t devices, double factor) {
  Worked worked = proportional(devices);
  profile::Profile& measured = worked.profiles->at("gpu");
  const double alone_ms = measured.find("a")->latency.latency_ms(32, Share{40}).value();
  measured.pairs.push_back({"a", 32, Share{40}, "b", 32, Share{60}, alone_ms * factor});
  worked.interference = std::make_unique<profile::InterferenceSet>();
  worked.interference->emplace(
      "gpu",
      profile::InterferenceModel::create(measured, profile::InterferenceKind::measured).value());
  worked.input.interference = worked.interference.get();
  return worked;
}

const Assignment& assignment_of(const Plan& plan, std::string_view model) {
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    for (const Assignment& one : gpulet.assignments) {
      if (one.model == model) return one;
    }
  }
  throw std::logic_error("the plan lacks the model");
}

bool breaks(const Plan& plan, const PlanInput& input, ViolationCause cause) {
  const std::vector<Violation> violations = check(plan, input);
  return std::any_of(violations.begin(), violations.end(),
                     [cause](const Violation& one) { return one.cause == cause; });
}

// Line 20 looks at the newcomer. a is lighter and comes first; then b makes it twice as slow.
TEST(ElasticPublished, DoesNotCheckTheNeighbourOfANewcomer) {
  Worked worked = with_slowdown_of_a(1, 2);
  worked.input.demands = {{"a", 360, 66, 32}, {"b", 560, 66, 32}};
  const Plan printed = policy("elastic-published")->plan(worked.input);
  EXPECT_TRUE(printed.schedulable());
  EXPECT_TRUE(breaks(printed, worked.input, ViolationCause::slowdown_by_neighbours));
  EXPECT_EQ(assignment_of(printed, "a").slowdown, 1);
  const Plan careful = policy("elastic-one-pass")->plan(worked.input);
  EXPECT_EQ(testing::violations(careful, worked.input), "");
}

TEST(ElasticPublished, ChecksTheNewcomerBesideItsNeighbour) {
  Worked worked = with_slowdown_of_a(1, 2);
  // Now b is lighter and comes first.
  worked.input.demands = {{"a", 560, 66, 32}, {"b", 360, 66, 32}};
  const Plan plan = policy("elastic-published")->plan(worked.input);
  EXPECT_FALSE(breaks(plan, worked.input, ViolationCause::slowdown_by_neighbours));
}

// a takes 20 % of the device. b takes the rest, which is the smallest free gpulet, and both share
// the larger of the two.
TEST(ElasticPublished, SharesTheTimeOfTheLargerGpulet) {
  Worked worked = proportional(2);
  worked.input.demands = {{"a", 20, 200, 32}, {"b", 25, 200, 32}};
  const Plan plan = policy("elastic-published")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  ASSERT_EQ(plan.gpulets.size(), 1U);
  EXPECT_EQ(plan.gpulets[0].size.percent, 80);
  EXPECT_EQ(plan.gpulets[0].assignments.size(), 2U);
}

TEST(IdealPublished, FindsTheDivisionThatServesEverything) {
  Worked worked = proportional(1);
  // Half of the device serves each, 40 and 60 % do not.
  const double most = 1000.0 * 15 / 32;
  worked.input.demands = {{"a", most, 66, 32}, {"b", most, 66, 32}};
  const Plan plan = policy("ideal-published")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  ASSERT_EQ(plan.gpulets.size(), 2U);
  EXPECT_EQ(plan.gpulets[0].size.percent, 50);
  EXPECT_EQ(plan.gpulets[1].size.percent, 50);
}

TEST(ElasticShipped, ShrinksTheBatchOfANeighbour) {
  Worked worked = with_slowdown_of_a(1, 1.3);
  worked.input.demands = {{"a", 300, 100, 32}, {"b", 430, 100, 32}};
  const Plan plan = policy("elastic-shipped")->plan(worked.input);
  const PlanInput alone{
      worked.input.cluster, {{"a", 300, 100, 32}}, worked.input.profiles, nullptr, nullptr,
      worked.input.options};
  const Plan before = policy("elastic-shipped")->plan(alone);
  EXPECT_LE(assignment_of(plan, "a").batch, assignment_of(before, "a").batch);
  EXPECT_EQ(structural_violations(plan, worked.input), "");
}

TEST(ElasticShipped, RaisesRatesForRandomArrivals) {
  Worked worked = proportional(1);
  worked.input.demands = {{"a", 100, 66, 32}};
  const auto round_holds = [&] {
    const Plan plan = policy("elastic-shipped")->plan(worked.input);
    EXPECT_NEAR(assignment_of(plan, "a").rate, 100, 1e-9);
    return 1000 * assignment_of(plan, "a").batch / plan.gpulets.front().duty_cycle_ms;
  };
  EXPECT_NEAR(round_holds(), 100, 1e-6);
  worked.input.options.headroom = Headroom::poisson;
  // 124 is the 99th percentile of a Poisson distribution with mean 100.
  EXPECT_NEAR(round_holds(), 124, 1e-6);
}

TEST(ElasticShipped, ServesModelsBelowItsSlack) {
  Worked worked = proportional(1);
  worked.input.demands = {{"a", 5, 66, 32}, {"b", 5, 66, 32}};
  const Plan plan = policy("elastic-shipped")->plan(worked.input);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_GT(assignment_of(plan, "a").rate, 0);
  EXPECT_GT(assignment_of(plan, "b").rate, 0);
}

}  // namespace
}  // namespace gpulet::schedule::published_test
