// Breaks every rule once: check() must report it.
#include "gpulet/schedule/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tests/schedule/breaks.h"
#include "tests/schedule/worked.h"
#include "tests/support/names.h"

namespace gpulet::schedule {
namespace {

using testing::breaks;
using testing::Worked;
using Cause = ViolationCause;

// Two models take turns on half a device, and one has the other half. Latencies at 50 %: "a"
// 2*(1+b), "b" 2*(2+b).
struct Sound {
  Worked worked;
  Plan plan;

  Sound() {
    testing::add_profile(worked, "gpu", {{"a", 1, 1, 32, 300}, {"b", 2, 1, 32, 500}});
    testing::add_devices(worked, "n0", "gpu", 2);
    for (Device& device : worked.input.cluster.devices) device.memory_mb = 1200;
    worked.input.demands = {{"a", 240, 40, 8}, {"b", 150, 50, 8}};
    worked.input.options.max_devices = 1;
    PlannedGpulet shared;
    shared.device = {"n0", 0};
    shared.size = Share{50};
    shared.duty_cycle_ms = 20;
    shared.assignments = {{"a", 100, 2, 6, 1, 40}, {"b", 150, 3, 10, 1, 50}};
    PlannedGpulet alone = shared;
    alone.assignments = {{"a", 130, 4, 10, 1, 40}};
    plan.policy = "by hand";
    plan.gpulets = {shared, alone};
    plan.unserved = {{"a", 10, "too much"}};
  }
};

TEST(Check, AcceptsASoundPlan) {
  const Sound sound;
  EXPECT_EQ(testing::violations(sound.plan, sound.worked.input), "");
}

TEST(Check, AcceptsASlowdownThatTheLatencyIncludes) {
  Sound sound;
  sound.plan.gpulets[1].assignments[0].slowdown = 1.5;
  sound.plan.gpulets[1].assignments[0].latency_ms = 15;
  EXPECT_EQ(testing::violations(sound.plan, sound.worked.input), "");
}

TEST(Check, AcceptsRoundingAndNoMore) {
  Sound sound;
  sound.plan.gpulets[0].assignments[0].rate = 100 * (1 + 5e-8);
  EXPECT_EQ(testing::violations(sound.plan, sound.worked.input), "");
  sound.plan.gpulets[0].assignments[0].rate = 100 * (1 + 5e-6);
  EXPECT_NE(testing::violations(sound.plan, sound.worked.input), "");
}

TEST(Check, FindsMoreModelsPerGpuletThanTheProtocolAllows) {
  Worked worked;
  std::vector<testing::ModelLatency> models;
  PlannedGpulet gpulet{{"n0", 0}, Share{100}, 100, {}};
  for (std::size_t i = 0; i <= kMostModelsOfGpulet; ++i) {
    const std::string name = "m" + std::to_string(i);
    models.push_back({name, 0, 0.001});
    worked.input.demands.push_back({name, 1, 1000, 1});
    gpulet.assignments.push_back({name, 1, 1, 0.001, 1, 1000});
  }
  testing::add_profile(worked, "gpu", models);
  testing::add_devices(worked, "n0", "gpu", 1);
  Plan plan;
  plan.gpulets = {gpulet};
  EXPECT_TRUE(breaks(plan, worked.input,
                     {.cause = Cause::too_many_models,
                      .found = kMostModelsOfGpulet + 1,
                      .expected = kMostModelsOfGpulet}));
  plan.gpulets[0].assignments.pop_back();
  plan.unserved = {{models.back().name, 1, "too many"}};
  EXPECT_EQ(testing::violations(plan, worked.input), "");
}

// A batch as large as the mean of the arrivals is too small.
TEST(Check, FindsBatchesWithoutHeadroomForPoissonArrivals) {
  Sound sound;
  EXPECT_EQ(check(sound.plan, sound.worked.input).size(), 0U);
  sound.worked.input.options.headroom = Headroom::poisson;
  EXPECT_GE(check(sound.plan, sound.worked.input).size(), 1U);
}

// Alone, with one batch of 1 at a time, and half a cycle to spare: an eighth of the time may be
// busy.
TEST(Check, AcceptsBatchesOfOneThatAreMostlyAlone) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 5, 5}});
  testing::add_devices(worked, "n0", "gpu", 1);
  worked.input.demands = {{"a", 10, 30, 8}};
  worked.input.options.headroom = Headroom::poisson;
  Plan plan;
  plan.gpulets = {{{"n0", 0}, Share{100}, 10, {{"a", 10, 1, 10, 1, 30}}}};
  EXPECT_EQ(testing::violations(plan, worked.input), "");
  worked.input.demands[0].rate = plan.gpulets[0].assignments[0].rate = 20;
  EXPECT_EQ(check(plan, worked.input).size(), 1U);
}

// The plan in force is checked against demands whose models may have become smaller.
TEST(Check, FindsABatchAboveTheDemandsAlone) {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 5, 5}});
  testing::add_devices(worked, "n0", "gpu", 1);
  worked.input.demands = {{"a", 100, 300, 2}};
  worked.input.options.headroom = Headroom::poisson;
  Plan plan;
  plan.gpulets = {{{"n0", 0}, Share{100}, 100, {{"a", 100, 16, 85, 1, 300}}}};
  EXPECT_EQ(check(plan, worked.input).size(), 1U);
}

// Times that fall as a batch grows are noise, for planners and for the check: a batch of 6 that was
// measured to be faster than one of 3 saves no time when it is half full.
TEST(Check, AcceptsPlansOfModelsWhoseTimesFallAsBatchesGrow) {
  Worked worked;
  testing::add_profile(worked, "gpu", {});
  std::vector<profile::LatencySample> samples;
  for (const auto& [batch, latency_ms] :
       {std::pair{1U, 1.249}, {2U, 1.227}, {3U, 1.265}, {4U, 1.303}, {6U, 1.250}}) {
    samples.push_back({batch, Share{100}, latency_ms});
  }
  worked.profiles->at("gpu").models.emplace(
      "a", profile::ModelProfile{profile::LatencyTable::create(samples).value(), {}, {}});
  testing::add_devices(worked, "n0", "gpu", 1);
  worked.input.demands = {{"a", 78, 2.856, 6}};
  worked.input.options.headroom = Headroom::poisson;
  Plan plan;
  plan.gpulets = {{{"n0", 0}, Share{100}, 1.303, {{"a", 78, 6, 1.25, 1, 2.856}}}};
  EXPECT_EQ(testing::violations(plan, worked.input), "");
}

// A batch of 4 of "a" takes 15 ms next to a batch of 2 of "a", and 10 ms alone.
TEST(Check, FindsASlowdownBelowWhatTheNeighboursCause) {
  Sound sound;
  profile::Profile& profile = sound.worked.profiles->at("gpu");
  profile.pairs.push_back({"a", 4, Share{50}, "a", 2, Share{50}, 15});
  const profile::InterferenceSet interference =
      profile::interference_of(*sound.worked.profiles, profile::InterferenceKind::measured).value();
  sound.worked.input.interference = &interference;
  EXPECT_TRUE(
      breaks(sound.plan, sound.worked.input,
             {.cause = Cause::slowdown_by_neighbours, .model = "a", .found = 1, .expected = 1.5}));
}

// A text names what the violation has: the gpulet, the model and the two numbers.
TEST(Check, SaysWhatBreaksTheRule) {
  Sound sound;
  sound.plan.gpulets[0].duty_cycle_ms = 45;
  const std::vector<Violation> found = check(sound.plan, sound.worked.input);
  const auto missed = std::find_if(found.begin(), found.end(), [](const Violation& one) {
    return one.cause == Cause::objective_missed;
  });
  ASSERT_NE(missed, found.end());
  EXPECT_EQ(missed->device, sound.plan.gpulets[0].device);
  EXPECT_EQ(missed->size, Share{50});
  EXPECT_TRUE(support::names(to_string(*missed), "n0/0", "50", "'a'", "51", "40"));
}

TEST(Check, HasATextForEveryCause) {
  for (int cause = 0; cause <= static_cast<int>(Cause::slowdown_by_neighbours); ++cause) {
    const Violation violation{.cause = static_cast<Cause>(cause), .type = "why"};
    EXPECT_FALSE(to_string(violation).empty()) << cause;
  }
}

struct BrokenCase {
  std::string what;
  void (*breaks)(Sound& sound);
  Violation violation;
};

class CheckFinds : public ::testing::TestWithParam<BrokenCase> {};

TEST_P(CheckFinds, Violation) {
  Sound sound;
  GetParam().breaks(sound);
  EXPECT_TRUE(breaks(sound.plan, sound.worked.input, GetParam().violation));
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Assignment& first(Sound& sound) { return sound.plan.gpulets[0].assignments[0]; }

INSTANTIATE_TEST_SUITE_P(
    Table, CheckFinds,
    ::testing::Values(
        BrokenCase{"UnknownDevice", [](Sound& s) { s.plan.gpulets[0].device.device = 7; },
                   {.cause = Cause::unknown_device}},
        BrokenCase{"UnlistedSize", [](Sound& s) { s.plan.gpulets[0].size = Share{45}; },
                   {.cause = Cause::unlisted_size}},
        BrokenCase{"MoreThanAWholeDevice", [](Sound& s) { s.plan.gpulets[1].size = Share{60}; },
                   {.cause = Cause::share_exceeded, .found = 110, .expected = 100}},
        BrokenCase{"TooManyGpulets",
                   [](Sound& s) {
                     for (Device& device : s.worked.input.cluster.devices)
                       device.max_partitions = 1;
                   },
                   {.cause = Cause::too_many_gpulets, .found = 2, .expected = 1}},
        BrokenCase{"TooManyDevices", [](Sound& s) { s.plan.gpulets[1].device.device = 1; },
                   {.cause = Cause::too_many_devices, .found = 2, .expected = 1}},
        BrokenCase{"EmptyGpulet", [](Sound& s) { s.plan.gpulets[1].assignments.clear(); },
                   {.cause = Cause::no_model}},
        BrokenCase{"LatencyTooSmall", [](Sound& s) { first(s).latency_ms = 5; },
                   {.cause = Cause::latency, .model = "a", .found = 5, .expected = 6}},
        BrokenCase{"MarginLeftOut", [](Sound& s) { s.worked.input.options.margin = 1.05; },
                   {.cause = Cause::latency, .model = "a", .found = 6, .expected = 6.3}},
        BrokenCase{"SlowdownLeftOut", [](Sound& s) { first(s).slowdown = 1.2; }, {.cause = Cause::latency, .model = "a", .found = 6, .expected = 7.2}},
        BrokenCase{"SlowdownBelowOne",
                   [](Sound& s) {
                     first(s).slowdown = 0.5;
                     first(s).latency_ms = 3;
                   },
                   {.cause = Cause::slowdown_below_one, .model = "a", .found = 0.5}},
        BrokenCase{"LatencyNaN", [](Sound& s) { first(s).latency_ms = kNaN; }, {.cause = Cause::latency, .model = "a", .found = kNaN, .expected = 6}},
        BrokenCase{"RoundLongerThanCycle", [](Sound& s) { s.plan.gpulets[0].duty_cycle_ms = 15; },
                   {.cause = Cause::round_too_long, .found = 16, .expected = 15}},
        BrokenCase{"BatchTooSmallForARound", [](Sound& s) { s.plan.gpulets[0].duty_cycle_ms = 25; },
                   {.cause = Cause::batch_below_arrivals, .model = "a", .found = 2.5, .expected = 2}},
        BrokenCase{"ObjectiveMissed", [](Sound& s) { s.plan.gpulets[0].duty_cycle_ms = 45; },
                   {.cause = Cause::objective_missed, .model = "a", .found = 51, .expected = 40}},
        BrokenCase{"NoCycle", [](Sound& s) { s.plan.gpulets[0].duty_cycle_ms = 0; },
                   {.cause = Cause::duty_cycle}},
        BrokenCase{"EndlessCycle", [](Sound& s) { s.plan.gpulets[0].duty_cycle_ms = kInfinity; },
                   {.cause = Cause::duty_cycle, .found = kInfinity}},
        BrokenCase{"OtherObjective", [](Sound& s) { first(s).slo_ms = 400; }, {.cause = Cause::other_objective, .model = "a", .found = 400, .expected = 40}},
        BrokenCase{"BatchAboveMaxBatch",
                   [](Sound& s) {
                     first(s).batch = 9;
                     first(s).latency_ms = 20;
                   },
                   {.cause = Cause::batch_out_of_range, .model = "a", .expected = 8}},
        BrokenCase{"BatchNeverMeasured", [](Sound& s) { first(s).batch = 33; },
                   {.cause = Cause::batch_not_measured, .model = "a"}},
        BrokenCase{"NoBatch", [](Sound& s) { first(s).batch = 0; }, {.cause = Cause::batch_out_of_range, .model = "a", .expected = 8}},
        BrokenCase{"SameModelTwice",
                   [](Sound& s) {
                     first(s).rate = 50;
                     s.plan.gpulets[0].assignments[1] = first(s);
                   },
                   {.cause = Cause::model_twice, .model = "a"}},
        BrokenCase{"NotInTheProfile",
                   [](Sound& s) {
                     s.worked.input.demands.push_back({"c", 1, 40, 8});
                     first(s).model = "c";
                   },
                   {.cause = Cause::not_in_profile, .model = "c"}},
        BrokenCase{"MemoryExceeded",
                   [](Sound& s) {
                     for (Device& device : s.worked.input.cluster.devices) device.memory_mb = 1099;
                   },
                   {.cause = Cause::memory_exceeded, .found = 1100, .expected = 1099}},
        BrokenCase{"SilentlyUnserved", [](Sound& s) { s.plan.unserved.clear(); },
                   {.cause = Cause::not_covered, .model = "a", .found = 230, .expected = 240}},
        BrokenCase{"ModelForgotten",
                   [](Sound& s) {
                     s.worked.input.demands.push_back({"c", 15, 40, 8});
                   },
                   {.cause = Cause::not_covered, .model = "c", .expected = 15}},
        BrokenCase{"MoreThanDemanded", [](Sound& s) { s.worked.input.demands[1].rate = 140; },
                   {.cause = Cause::not_covered, .model = "b", .found = 150, .expected = 140}},
        BrokenCase{"NotDemanded", [](Sound& s) { s.worked.input.demands.pop_back(); },
                   {.cause = Cause::not_demanded, .model = "b"}},
        BrokenCase{"UnservedWithoutDemand",
                   [](Sound& s) {
                     s.plan.unserved.push_back({"c", 1, ""});
                   },
                   {.cause = Cause::unserved_not_demanded, .model = "c"}},
        BrokenCase{"UnservedTwice",
                   [](Sound& s) {
                     s.plan.unserved = {{"a", 5, ""}, {"a", 5, ""}};
                   },
                   {.cause = Cause::unserved_twice, .model = "a"}},
        BrokenCase{"NegativeRates",
                   [](Sound& s) {
                     first(s).rate = -1;
                     s.plan.unserved[0].rate = 111;
                   },
                   {.cause = Cause::rate, .model = "a", .found = -1}},
        BrokenCase{"NegativeUnserved",
                   [](Sound& s) {
                     s.plan.unserved.push_back({"b", -1, ""});
                   },
                   {.cause = Cause::unserved_rate, .model = "b", .found = -1}},
        BrokenCase{"NoProfiles", [](Sound& s) { s.worked.input.profiles = nullptr; },
                   {.cause = Cause::no_profiles}}),
    [](const auto& instance) { return instance.param.what; });

}  // namespace
}  // namespace gpulet::schedule
