#include "gpulet/simulate/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "tests/support/names.h"
#include "tests/support/serve/world.h"

namespace gpulet::simulate {
namespace {

using support::names;
using ::testing::IsEmpty;

struct Case {
  std::unique_ptr<schedule::Policy> policy = schedule::make_policy("elastic").value();
  Knowledge knowledge;
  SimulationInput input;
  SimulationOptions options;

  [[nodiscard]] Result<Outcome> run() const { return simulate(knowledge, input, options); }
};

// Models m0, m1, ... with 3, 4, ... ms on devices of one type. `slowdown`: the measured slowdown of
// every pair.
Case made_case(std::uint32_t devices, const std::vector<double>& rates, double slowdown = 1) {
  Case made;
  std::map<std::string, double> base_ms;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const std::string name = "m" + std::to_string(i);
    base_ms[name] = 3 + static_cast<double>(i % 10);
    made.input.demands.push_back({name, rates[i], 100 + 10 * static_cast<double>(i % 10), 16});
  }
  profile::Profile card = serve::testing::card_profile(base_ms);
  for (const auto& [model, own_ms] : base_ms) {
    if (slowdown == 1) break;
    for (const auto& [other, other_ms] : base_ms) {
      const double alone_ms = card.find(model)->latency.latency_ms(4, Share{50}).value();
      card.pairs.push_back({model, 4, {50}, other, 4, {50}, alone_ms * slowdown});
    }
  }
  made.knowledge.profiles =
      std::make_shared<const profile::ProfileSet>(profile::ProfileSet{{"card", card}});
  made.knowledge.believed = std::make_shared<const profile::InterferenceSet>();
  made.knowledge.simulated = simulated_interference(*made.knowledge.profiles);
  made.knowledge.policy = made.policy.get();
  for (std::uint32_t i = 0; i < devices; ++i) {
    schedule::Device& device = made.input.cluster.devices.emplace_back();
    device.key = {"n" + std::to_string(10000 + i / 8), i % 8};
    device.type = "card";
    device.partitioning = "mps";
    device.sizes = {{20}, {40}, {50}, {60}, {80}, {100}};
  }
  made.options.seconds = 20;
  return made;
}

void expect_equal(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.models, b.models);
  EXPECT_EQ(a.reorganisations, b.reorganisations);
  EXPECT_EQ(a.series, b.series);
  EXPECT_EQ(a.events, b.events);
  EXPECT_EQ(a.plans, b.plans);
}

TEST(Simulation, ServesAScheduledLoadWithinItsObjectives) {
  Case made = made_case(2, {60, 40});
  const Outcome outcome = made.run().value();
  EXPECT_TRUE(outcome.first_plan.schedulable());
  ASSERT_EQ(outcome.models.size(), 2U);
  EXPECT_NEAR(static_cast<double>(outcome.models[0].offered), 60 * 20, 5 * std::sqrt(60 * 20));
  EXPECT_LT(outcome.violation, 0.01);
  EXPECT_LE(outcome.models[0].p50_ms.value(), outcome.models[0].p99_ms.value());
  EXPECT_LE(outcome.models[0].p99_ms.value(), outcome.models[0].slo_ms);
  EXPECT_GE(outcome.devices_used, 1U);
}

TEST(Simulation, EqualSeedsGiveEqualRuns) {
  Case made = made_case(2, {80, 50, 20}, 1.4);
  made.options.series_step = std::chrono::seconds(5);
  const Outcome first = made.run().value();
  expect_equal(first, made.run().value());
  made.options.seed = 2;
  EXPECT_NE(first.models, made.run().value().models);
}

TEST(Simulation, OffersTheArrivalsOfATrace) {
  Case made = made_case(1, {20, 0});
  made.options.trace = std::make_shared<const config::Trace>(
      config::parse_trace("time_s,model,count\n0,m0,3\n1,m1,2\n1,m0,1\n30,m0,7\n", "f").value());
  const Outcome outcome = made.run().value();
  EXPECT_EQ(outcome.models[0].offered, 4U) << "arrivals after the end are not offered";
  EXPECT_EQ(outcome.models[1].offered, 2U);
}

TEST(Simulation, SlowdownsAreMeasuredOnesNotThoseThatThePlanAssumes) {
  Case alone = made_case(1, {220, 150}, 1);
  Case beside = made_case(1, {220, 150}, 1.8);
  for (Case* made : {&alone, &beside}) made->input.cluster.devices[0].sizes = {{50}};
  alone.options.keep_plan = beside.options.keep_plan = true;
  alone.options.series_step = beside.options.series_step = std::chrono::seconds(20);
  alone.input.options.headroom = beside.input.options.headroom = schedule::Headroom::none;
  const Outcome undisturbed = alone.run().value();
  const Outcome disturbed = beside.run().value();
  ASSERT_TRUE(undisturbed.first_plan.schedulable());
  ASSERT_EQ(undisturbed.reorganisations, disturbed.reorganisations) << "the same plan";
  ASSERT_EQ(undisturbed.reorganisations[0].gpulets, 2U);
  EXPECT_GT(disturbed.models[0].p50_ms.value(), undisturbed.models[0].p50_ms.value());
  EXPECT_GT(disturbed.violation, undisturbed.violation);
  EXPECT_NEAR(undisturbed.series[0].batch_rate[0] / disturbed.series[0].batch_rate[0], 1.8, 1e-6)
      << "whatever the plan expects";
}

TEST(Simulation, AKeptPlanIsForTheDemandAndStaysUnderAnyLoad) {
  Case made = made_case(4, {40});
  made.options.keep_plan = true;
  made.options.trace = std::make_shared<const config::Trace>(
      config::parse_trace("time_s,model,rate\n2,m0,2000\n", "f").value());
  const Outcome outcome = made.run().value();
  EXPECT_EQ(outcome.plans, 1U);
  EXPECT_EQ(outcome.reorganisations.size(), 1U);
  EXPECT_GT(outcome.models[0].dropped, 0U);
  EXPECT_GT(outcome.violation, 0.1);
}

TEST(Simulation, PlansFollowTwoWavesOfLoad) {
  Case made = made_case(8, {200, 200, 100});
  made.options.seconds = 400;
  made.options.series_step = std::chrono::seconds(20);
  auto trace = std::make_shared<config::Trace>();
  for (const schedule::ModelDemand& demand : made.input.demands) {
    for (int at_s = 0; at_s < 400; at_s += 10) {
      const double wave = 1 - 0.7 * std::cos(2 * 2 * 3.14159265 * at_s / 400);
      trace->rates[demand.name].push_back({static_cast<double>(at_s), demand.rate * wave});
    }
  }
  made.options.trace = trace;
  const Outcome outcome = made.run().value();
  EXPECT_GT(outcome.reorganisations.size(), 3U);
  EXPECT_LT(outcome.violation, 0.02);
  ASSERT_EQ(outcome.series.size(), 20U);
  const auto share = [&](std::size_t row) { return outcome.series[row].share_percent; };
  EXPECT_GT(share(5), share(1)) << "the first wave";
  EXPECT_LT(share(11), share(6)) << "after the first wave";
  EXPECT_GT(share(15), share(11)) << "the second wave";
  std::uint64_t offered = 0;
  for (const SeriesRow& row : outcome.series) offered += row.offered[0];
  EXPECT_EQ(offered, outcome.models[0].offered);
  for (const SeriesRow& row : outcome.series) {
    EXPECT_GE(row.batch_planned[0], 1);
    EXPECT_GE(row.batch_run[0], 1);
    EXPECT_GT(row.batch_rate[0], 0);
    EXPECT_LE(row.batch_run[0], 32);
  }
}

TEST(Simulation, SpareShareAnswersAModelOfALowRateSooner) {
  Case made = made_case(1, {5});
  made.options.seconds = 60;
  const Outcome with = made.run().value();
  made.input.options.use_spare = false;
  const Outcome without = made.run().value();
  EXPECT_EQ(with.devices_used, without.devices_used);
  EXPECT_LT(with.models[0].p50_ms.value() * 3, without.models[0].p50_ms.value());
  EXPECT_LT(with.models[0].p99_ms.value(), without.models[0].p99_ms.value());
}

// A gpulet that has the whole device serves much more than the plan first needed of it.
TEST(Simulation, ARisingRateOfAGpuletWithSpareShareStartsNoGpulet) {
  Case made = made_case(1, {5});
  made.options.seconds = 60;
  made.options.trace = std::make_shared<const config::Trace>(
      config::parse_trace("time_s,model,rate\n0,m0,5\n10,m0,20\n20,m0,60\n30,m0,120\n", "f")
          .value());
  const Outcome outcome = made.run().value();
  EXPECT_GT(outcome.plans, 2U);
  EXPECT_EQ(outcome.violation, 0);
  for (const Reorganisation& one : outcome.reorganisations) {
    EXPECT_EQ(one.gpulets, 1U);
    EXPECT_EQ(one.share_percent, 100);
  }
}

TEST(Simulation, SlowerProcessesDelayOnlyTheFirstPlan) {
  Case made = made_case(1, {50});
  made.options.keep_plan = true;
  const Outcome quick = made.run().value();
  made.options.timings.model_load = std::chrono::seconds(20);
  EXPECT_EQ(made.run().value().models, quick.models);
}

TEST(Simulation, AnUnschedulableDemandRunsUnlessOnlySchedulable) {
  Case made = made_case(1, {5000});
  made.options.seconds = 2;
  const Outcome run = made.run().value();
  EXPECT_FALSE(run.first_plan.schedulable());
  ASSERT_EQ(run.first_plan.unserved.size(), 1U);
  EXPECT_GT(run.models[0].offered, 5000U);
  EXPECT_GT(run.violation, 0.5);
  made.options.only_schedulable = true;
  EXPECT_EQ(made.run().value().requests, 0U);
}

TEST(Simulation, RefusesInvalidInput) {
  const auto error = [](const Case& made) {
    const Status status = made.run().status();
    EXPECT_EQ(status.code(), StatusCode::invalid);
    return status.message();
  };
  Case made = made_case(1, {10});
  made.options.seconds = 0;
  EXPECT_TRUE(names(error(made), "seconds"));
  made = made_case(1, {-1});
  EXPECT_TRUE(names(error(made), "m0"));
  made = made_case(1, {10});
  made.options.trace = std::make_shared<const config::Trace>(
      config::parse_trace("time_s,model\n0,other\n", "f").value());
  EXPECT_TRUE(names(error(made), "other"));
  made = made_case(2, {10});
  made.input.cluster.devices.erase(made.input.cluster.devices.begin());
  EXPECT_TRUE(names(error(made), "n10000"));
}

TEST(Simulation, RunsAThousandModelsOnTenThousandDevices) {
  std::vector<double> rates(1000);
  std::iota(rates.begin(), rates.end(), 100.0);
  Case made = made_case(10000, rates);
  made.options.seconds = 0.2;
  made.options.keep_plan = true;
  const Outcome outcome = made.run().value();
  EXPECT_TRUE(outcome.first_plan.schedulable());
  EXPECT_GT(outcome.devices_used, 1000U);
  EXPECT_GT(outcome.requests, 100000U);
  EXPECT_LT(outcome.violation, 0.05);
}

RC_GTEST_PROP(SimulationProperty, EveryRequestGetsOneResponse, ()) {
  std::vector<double> rates;
  for (int i = *rc::gen::inRange(1, 4); i > 0; --i) rates.push_back(*rc::gen::inRange(0, 400));
  Case made = made_case(static_cast<std::uint32_t>(*rc::gen::inRange(1, 4)), rates,
                        *rc::gen::element(1.0, 1.3, 2.5));
  made.options.seconds = 5;
  made.options.seed = *rc::gen::arbitrary<std::uint64_t>();
  made.options.keep_plan = *rc::gen::arbitrary<bool>();
  const Result<Outcome> outcome = made.run();  // fails if a request gets no response
  RC_ASSERT(outcome.ok());
  std::uint64_t offered = 0;
  for (const ModelOutcome& model : outcome.value().models) {
    RC_ASSERT(model.offered == model.served + model.dropped + model.errors);
    RC_ASSERT(model.late <= model.served);
    offered += model.offered;
  }
  RC_ASSERT(offered == outcome.value().requests);
}

// A step of a training: what waits at its end waits when the next one starts.
TEST(Simulation, LeavesTheRequestsThatWait) {
  Case made = made_case(1, {400});
  made.options.seconds = 1;
  made.options.seed = 4;
  const Outcome all = made.run().value();
  made.options.leave_waiting = true;
  const Outcome one = made.run().value();
  ASSERT_FALSE(one.left.empty());
  EXPECT_THAT(all.left, IsEmpty());
  EXPECT_EQ(one.requests + one.left.size(), all.requests);
  EXPECT_EQ(one.models[0].served, one.requests);
  EXPECT_GE(one.left.front().age, one.left.back().age);
  EXPECT_GE(one.left.back().age, Duration(0));
  EXPECT_LT(one.left.front().age, std::chrono::milliseconds(100));
}

TEST(Simulation, CountsRequestsOfAnEarlierRunWithTheirAge) {
  Case made = made_case(1, {100});
  made.options.seconds = 1;
  const Outcome alone = made.run().value();
  EXPECT_EQ(alone.violation, 0);
  const Duration slo = std::chrono::milliseconds(100);
  made.options.waiting = {{0, slo + slo}, {0, std::chrono::milliseconds(5)}};
  const Outcome after = made.run().value();
  EXPECT_EQ(after.requests, alone.requests + 2);
  EXPECT_EQ(after.models[0].late + after.models[0].dropped, 1);
  made.options.waiting = {{1, slo}};
  EXPECT_EQ(made.run().status().code(), StatusCode::invalid);
}

// Requests wait in the queues of the frontend that leads, wherever they arrive.
TEST(Simulation, MoreFrontendsServeAsMuchInBatchesAsLarge) {
  Case made = made_case(4, {300, 250, 200, 150});
  const auto good = [](const Outcome& outcome) {
    std::uint64_t in_time = 0;
    for (const ModelOutcome& model : outcome.models) in_time += model.served - model.late;
    return static_cast<double>(in_time);
  };
  const Outcome one = made.run().value();
  EXPECT_GT(one.mean_batch, 2);
  for (const std::uint32_t frontends : {2U, 4U, 8U}) {
    made.options.frontends = frontends;
    const Outcome several = made.run().value();
    EXPECT_EQ(several.requests, one.requests);
    EXPECT_GE(good(several), 0.98 * good(one)) << frontends;
    EXPECT_GE(several.mean_batch, 0.98 * one.mean_batch) << frontends;
  }
}

TEST(Simulation, ThereIsAtLeastOneFrontend) {
  Case made = made_case(1, {10});
  made.options.frontends = 0;
  EXPECT_EQ(made.run().status().code(), StatusCode::invalid);
}

}  // namespace
}  // namespace gpulet::simulate
