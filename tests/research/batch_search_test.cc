// InSS's batch decision for a given placement or the one in force.
#include "research/batch_search.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "gpulet/schedule/check.h"
#include "schedule/batch_planner.h"
#include "tests/schedule/generated.h"
#include "tests/support/names.h"

namespace gpulet::research {
namespace {

using namespace schedule;  // NOLINT(google-build-using-namespace)
using schedule::testing::policy;
using schedule::testing::violations;
using schedule::testing::Worked;

// The plan with another batch in its only gpulet.
Plan with_batch(Plan plan, const Worked& worked, std::uint32_t batch) {
  PlannedGpulet& gpulet = plan.gpulets.front();
  Assignment& only = gpulet.assignments.front();
  const profile::ModelProfile* measured = worked.profiles->at("gpu").find(only.model);
  only.batch = batch;
  only.latency_ms = measured->latency.latency_ms(batch, gpulet.size).value_or(1e9);
  gpulet.duty_cycle_ms = only.latency_ms;
  return plan;
}

RC_GTEST_PROP(BatchSearch, FindsTheLargestBatchThatTheRulesAllow, ()) {
  Worked worked;
  const double fixed_ms = *rc::gen::inRange(0, 200) / 10.0;
  const double per_request_ms = *rc::gen::inRange(1, 40) / 10.0;
  schedule::testing::add_profile(worked, "gpu", {{"net", fixed_ms, per_request_ms}});
  schedule::testing::add_devices(worked, "n0", "gpu", 1);
  const double slo_ms = *rc::gen::inRange(10, 400);
  worked.input.demands = {{"net", *rc::gen::inRange(1, 400) * 1.0, slo_ms, 32}};
  if (*rc::gen::arbitrary<bool>()) worked.input.options.headroom = Headroom::poisson;
  const Share size{*rc::gen::element(20, 50, 100)};
  const std::vector<ModelPlacement> places{{0, 0, size}};
  Plan plan = BatchSearch(worked.input).decide(places);
  RC_LOG() << violations(plan, worked.input);
  RC_ASSERT(check(plan, worked.input).empty());
  if (!plan.schedulable()) return;

  const double rate = worked.input.demands[0].rate;
  if (worked.input.options.headroom == Headroom::poisson) {
    // check() forgives so much, the planner nothing.
    worked.input.demands[0].rate *= kArrivalsTolerance;
    plan.gpulets.front().assignments.front().rate *= kArrivalsTolerance;
  }
  std::optional<std::uint32_t> least;
  std::optional<std::uint32_t> largest_filled;
  for (std::uint32_t batch = 1; batch <= 32; ++batch) {
    const Plan other = with_batch(plan, worked, batch);
    if (!check(other, worked.input).empty()) continue;
    if (!least) least = batch;
    const double round_ms = other.gpulets.front().duty_cycle_ms;
    if (task_latency_ms({1, batch, rate, round_ms, round_ms}) <= slo_ms * (1 + kCheckTolerance))
      largest_filled = batch;
  }
  RC_ASSERT(least.has_value());
  RC_ASSERT(plan.gpulets.front().assignments.front().batch == largest_filled.value_or(*least));
}

std::vector<ModelPlacement> any_places(const PlanInput& input) {
  std::vector<ModelPlacement> places;
  const auto models = static_cast<std::uint32_t>(input.demands.size());
  const auto devices = static_cast<std::uint32_t>(input.cluster.devices.size());
  const int count = *rc::gen::inRange(0, 24);
  for (int index = 0; index < count; ++index) {
    const auto device = *rc::gen::inRange<std::uint32_t>(0, devices + 1);
    int percent = *rc::gen::inRange(1, 101);
    if (device<devices&& * rc::gen::inRange(0, 8)> 0)
      percent = (*rc::gen::elementOf(input.cluster.devices[device].sizes)).percent;
    places.push_back({*rc::gen::inRange<std::uint32_t>(0, models + 1), device, Share{percent}});
  }
  return places;
}

RC_GTEST_PROP(BatchSearch, MakesAPlanOfAnyPlacement, ()) {
  const Worked worked = schedule::testing::any_input();
  BatchSearch search(worked.input);
  for (int again = 0; again < 4; ++again) {
    std::vector<ModelPlacement> places = any_places(worked.input);
    const Plan plan = search.decide(places);
    RC_LOG() << violations(plan, worked.input);
    RC_ASSERT(check(plan, worked.input).empty());
    for (const PlannedGpulet& gpulet : plan.gpulets) RC_ASSERT(gpulet.assignments.size() == 1U);
    for (const Unserved& unserved : plan.unserved) RC_ASSERT(!unserved.reason.empty());
    std::reverse(places.begin(), places.end());
    RC_ASSERT(BatchSearch(worked.input).decide(places) == plan);
  }
}

// Two models on halves of a device. A batch of one slows nothing down; next to a batch of 32
// everything takes three times as long.
Worked neighbours() {
  Worked worked;
  schedule::testing::add_profile(worked, "gpu", {{"a", 4, 1}, {"b", 4, 1}});
  schedule::testing::add_devices(worked, "n0", "gpu", 1);
  profile::Profile& measured = worked.profiles->at("gpu");
  for (auto& [name, model] : measured.models) {
    for (const std::uint32_t batch : {1U, 32U}) {
      for (const std::uint32_t beside : {1U, 32U}) {
        const double alone_ms = model.latency.latency_ms(batch, Share{50}).value();
        measured.pairs.push_back({name, batch, Share{50}, name == "a" ? "b" : "a", beside,
                                  Share{50}, alone_ms * (beside == 1 ? 1 : 3)});
      }
    }
  }
  worked.interference = std::make_unique<profile::InterferenceSet>();
  worked.interference->emplace(
      "gpu",
      profile::InterferenceModel::create(measured, profile::InterferenceKind::measured).value());
  worked.input.interference = worked.interference.get();
  return worked;
}

TEST(BatchSearch, KeepsABatchAsSmallAsItsNeighbourRequires) {
  Worked worked = neighbours();
  // A single request takes 10 ms at 50 %, three times that beside a full batch of the other.
  worked.input.demands = {{"a", 20, 40, 32}, {"b", 20, 1000, 32}};
  const std::vector<ModelPlacement> both{{0, 0, {50}}, {1, 0, {50}}};
  const Plan plan = BatchSearch(worked.input).decide(both);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(violations(plan, worked.input), "");
  ASSERT_EQ(plan.gpulets.size(), 2U);
  EXPECT_EQ(plan.gpulets[1].assignments[0].batch, 1U);

  const Plan alone = BatchSearch(worked.input).decide(std::vector<ModelPlacement>{{1, 0, {50}}});
  EXPECT_GT(alone.gpulets[0].assignments[0].batch, 1U);
}

// A single request takes 10 ms at 50 %: 100 a second, or 33 beside a full batch of the other.
TEST(BatchSearch, KeepsABatchSmallForTheRateOfANeighbour) {
  for (const std::size_t strict : {std::size_t{0}, std::size_t{1}}) {
    Worked worked = neighbours();
    worked.input.demands = {{"a", 20, 1000, 32}, {"b", 20, 1000, 32}};
    worked.input.demands[strict].rate = 50;
    worked.input.demands[strict].max_batch = 1;
    const std::vector<ModelPlacement> both{{0, 0, {50}}, {1, 0, {50}}};
    const Plan plan = BatchSearch(worked.input).decide(both);
    EXPECT_TRUE(plan.schedulable());
    EXPECT_EQ(violations(plan, worked.input), "");
    ASSERT_EQ(plan.gpulets.size(), 2U);
    for (const PlannedGpulet& gpulet : plan.gpulets) {
      const Assignment& only = gpulet.assignments.at(0);
      EXPECT_EQ(only.batch, 1U) << only.model;
      EXPECT_DOUBLE_EQ(only.slowdown, 1) << only.model;
      EXPECT_DOUBLE_EQ(only.latency_ms, 10) << only.model;
    }
  }
}

// 19 more requests arrive in 950 ms, and 20 of them take 48 ms.
TEST(BatchSearch, GpuletsOfOtherDevicesAreNoNeighbours) {
  Worked worked = neighbours();
  schedule::testing::add_devices(worked, "n0", "gpu", 1);
  worked.input.demands = {{"a", 50, 1000, 1}, {"b", 20, 1000, 32}};
  const std::vector<ModelPlacement> apart{{0, 0, {50}}, {1, 1, {50}}};
  const Plan plan = BatchSearch(worked.input).decide(apart);
  EXPECT_TRUE(plan.schedulable());
  EXPECT_EQ(violations(plan, worked.input), "");
  ASSERT_EQ(plan.gpulets.size(), 2U);
  EXPECT_DOUBLE_EQ(plan.gpulets[0].assignments.at(0).latency_ms, 10);
  EXPECT_EQ(plan.gpulets[1].assignments.at(0).batch, 20U);
}

TEST(BatchSearch, ExplainsRatesThatDoNotFit) {
  Worked worked = neighbours();
  worked.input.demands = {{"a", 9000, 400, 32}, {"b", 10, 400, 32}};
  const Plan plan = BatchSearch(worked.input).decide(std::vector<ModelPlacement>{{0, 0, {50}}});
  EXPECT_EQ(violations(plan, worked.input), "");
  ASSERT_EQ(plan.unserved.size(), 2U);
  EXPECT_TRUE(support::names(plan.unserved[0].reason, "50 %", "n0/0"));
  EXPECT_FALSE(support::names(plan.unserved[1].reason, "n0/0")) << "it has no place";
}

using Where = std::tuple<DeviceKey, Share>;

std::vector<Where> gpulets_of(const Plan& plan) {
  std::vector<Where> gpulets;
  for (const PlannedGpulet& gpulet : plan.gpulets) gpulets.emplace_back(gpulet.device, gpulet.size);
  std::sort(gpulets.begin(), gpulets.end());
  return gpulets;
}

RC_GTEST_PROP(KeepPlacement, MovesNoGpulet, ()) {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<std::uint64_t>());
  const Worked worked = schedule::testing::generated(seed, *rc::gen::inRange<std::uint32_t>(1, 12));
  const double scale = *rc::gen::inRange(50, 150) / 100.0;
  for (const char* name : {"elastic", "igniter", "sbp"}) {
    const Plan before = policy(name)->plan(worked.input);
    PlanInput input = worked.input;
    input.current = &before;
    for (ModelDemand& demand : input.demands) demand.rate *= scale;
    const std::optional<Plan> kept = keep_placement(input);
    // Lower rates fit wherever higher ones did.
    if (before.schedulable() && scale <= 1) RC_ASSERT(kept.has_value());
    if (!kept) continue;
    RC_LOG() << name << "\n" << violations(*kept, input);
    RC_ASSERT(check(*kept, input).empty());
    RC_ASSERT(kept->schedulable());
    const std::vector<Where> there = gpulets_of(before);
    const std::vector<Where> still = gpulets_of(*kept);
    RC_ASSERT(std::includes(there.begin(), there.end(), still.begin(), still.end()));
  }
}

// A batch of 16 of a takes 20 ms, one of 17 takes 21 ms, and a single request of b takes 5 ms.
TEST(KeepPlacement, GrowsABatchUpToTheExactLimitOfEveryRule) {
  struct Limit {
    const char* what;
    double slo_of_a_ms;
    double rate_of_b;
    double slo_of_b_ms;
  };
  for (const Limit& limit :
       {Limit{"the SLO of a: 150 ms until the batch is full, and 20 ms", 170, 10, 1000},
        Limit{"the SLO of b: a round of 25 ms, and 5 ms", 1000, 10, 30},
        Limit{"the rate of b: one request in 25 ms", 1000, 40, 1000}}) {
    Worked worked;
    schedule::testing::add_profile(worked, "gpu", {{"a", 4, 1}, {"b", 4, 1}});
    schedule::testing::add_devices(worked, "n0", "gpu", 1);
    worked.input.demands = {{"a", 100, limit.slo_of_a_ms, 32},
                            {"b", limit.rate_of_b, limit.slo_of_b_ms, 1}};
    PlannedGpulet shared;
    shared.device = {"n0", 0};
    shared.size = kWholeDevice;
    shared.duty_cycle_ms = 10;
    shared.assignments = {{"a", 100, 1, 5, 1, limit.slo_of_a_ms},
                          {"b", limit.rate_of_b, 1, 5, 1, limit.slo_of_b_ms}};
    Plan current;
    current.gpulets = {shared};
    worked.input.current = &current;
    const std::optional<Plan> kept = keep_placement(worked.input);
    ASSERT_TRUE(kept.has_value()) << limit.what;
    EXPECT_EQ(violations(*kept, worked.input), "") << limit.what;
    ASSERT_EQ(kept->gpulets.size(), 1U) << limit.what;
    EXPECT_EQ(kept->gpulets[0].assignments.at(0).batch, 16U) << limit.what;
  }
}

TEST(KeepPlacement, ReturnsNothingWithoutAPlanInForce) {
  EXPECT_FALSE(keep_placement(neighbours().input).has_value());
}

TEST(ElasticBatchSearch, MakesBatchesLargerWhereElasticIs) {
  Worked worked;
  schedule::testing::add_profile(worked, "gpu", {{"a", 4, 0.1}, {"b", 2, 0.5}});
  schedule::testing::add_devices(worked, "n0", "gpu", 2);
  worked.input.demands = {{"a", 900, 60, 32}, {"b", 700, 60, 32}};
  const Plan elastic = policy("elastic")->plan(worked.input);
  const Plan searched = policy("elastic-batch-search")->plan(worked.input);
  EXPECT_EQ(gpulets_of(searched), gpulets_of(elastic));
  for (std::size_t index = 0; index < elastic.gpulets.size(); ++index) {
    EXPECT_GT(searched.gpulets[index].assignments[0].batch,
              elastic.gpulets[index].assignments[0].batch);
  }
  // The present gpulets serve a tenth more.
  for (ModelDemand& demand : worked.input.demands) demand.rate *= 1.1;
  worked.input.current = &searched;
  const Plan kept = policy("elastic-batch-search")->plan(worked.input);
  EXPECT_TRUE(kept.schedulable());
  EXPECT_EQ(gpulets_of(kept), gpulets_of(searched));
}

}  // namespace
}  // namespace gpulet::research
