#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/simulate/simulation.h"
#include "tests/support/names.h"
#include "tests/support/serve/world.h"

namespace gpulet::simulate {
namespace {

using config::ApplicationDemand;
using config::DemandNode;
using support::names;

constexpr double kModelSloMs = 200;

// The models m0, m1, ... take 3, 4, ... ms. Their own clients send nothing.
struct Served {
  std::shared_ptr<schedule::Policy> policy = schedule::make_policy("elastic").value();
  Knowledge knowledge;
  SimulationInput input;
  SimulationOptions options;

  [[nodiscard]] Result<Outcome> run() const { return simulate(knowledge, input, options); }
  [[nodiscard]] std::vector<schedule::ModelDemand> planned() const {
    return planned_demands({input.demands, input.applications}, *knowledge.profiles).value();
  }
};

Served served(std::uint32_t devices, std::size_t models,
              std::vector<ApplicationDemand> applications) {
  Served made;
  std::map<std::string, double> base_ms;
  for (std::size_t i = 0; i < models; ++i) {
    const std::string name = "m" + std::to_string(i);
    base_ms[name] = 3 + static_cast<double>(i);
    made.input.demands.push_back({name, 0, kModelSloMs, 16});
  }
  made.knowledge.profiles = std::make_shared<const profile::ProfileSet>(
      profile::ProfileSet{{"card", serve::testing::card_profile(base_ms)}});
  made.knowledge.believed = std::make_shared<const profile::InterferenceSet>();
  made.knowledge.simulated = simulated_interference(*made.knowledge.profiles);
  made.knowledge.policy = made.policy.get();
  for (std::uint32_t i = 0; i < devices; ++i) {
    schedule::Device& device = made.input.cluster.devices.emplace_back();
    device.key = {"n0", i};
    device.type = "card";
    device.partitioning = "mps";
    device.sizes = {{20}, {40}, {50}, {60}, {80}, {100}};
  }
  made.input.applications = std::move(applications);
  made.options.seconds = 20;
  made.options.keep_plan = true;
  return made;
}

std::shared_ptr<const config::Trace> trace(const std::string& rows) {
  return std::make_shared<const config::Trace>(
      config::parse_trace("time_s,model,count\n" + rows, "f").value());
}

// The response time of one request to `name` when nothing else is served.
double response_ms(Served made, const std::string& name) {
  made.options.trace = trace("1," + name + ",1\n");
  const Outcome outcome = made.run().value();
  std::vector<ModelOutcome> all = outcome.models;
  all.insert(all.end(), outcome.applications.begin(), outcome.applications.end());
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&name](const ModelOutcome& one) { return one.name == name; });
  EXPECT_EQ(found->served, 1U) << name;
  return found->mean_ms;
}

std::uint64_t violations(const ModelOutcome& outcome) {
  return outcome.late + outcome.dropped + outcome.errors;
}

TEST(SimulatedApplications, CountWholeRequestsOnly) {
  const Outcome outcome =
      served(2, 2, {{"game", 40, 100, {{"digits", "m0", 6}, {"scene", "m1"}}}}).run().value();
  EXPECT_TRUE(outcome.first_plan.schedulable());
  for (const ModelOutcome& model : outcome.models) EXPECT_EQ(model.offered, 0U) << model.name;
  ASSERT_EQ(outcome.applications.size(), 1U);
  const ModelOutcome& game = outcome.applications[0];
  EXPECT_EQ(game.name, "game");
  EXPECT_EQ(game.slo_ms, 100);
  EXPECT_NEAR(static_cast<double>(game.offered), 40 * 20, 5 * std::sqrt(40 * 20));
  EXPECT_EQ(game.offered, outcome.requests);
  EXPECT_EQ(game.offered, game.served + game.dropped + game.errors);
  EXPECT_LT(game.violation, 0.01);
  EXPECT_EQ(game.violation, outcome.violation);
  EXPECT_LE(game.p50_ms.value(), game.p99_ms.value());
}

TEST(SimulatedApplications, TakeAsLongAsTheirSlowestPath) {
  // At this rate no device has room for both models.
  const ApplicationDemand both{"both", 140, kModelSloMs, {{"a", "m0"}, {"b", "m9"}}};
  Served made = served(4, 10, {both});
  for (std::size_t i : {0U, 9U}) made.input.demands[i].rate = 1;
  const double slowest = std::max(response_ms(made, "m0"), response_ms(made, "m9"));
  EXPECT_NEAR(response_ms(made, "both"), slowest, 0.01);
}

TEST(SimulatedApplications, AreLateIfOnePathIs) {
  const ApplicationDemand both{"both", 5, kModelSloMs, {{"a", "m0"}, {"b", "m9"}}};
  Served made = served(4, 10, {both});
  made.options.trace = trace("1,both,1\n2,both,1\n3,both,1\n");
  EXPECT_EQ(violations(made.run().value().applications[0]), 0U);
  // m0 alone keeps the objective at this pace, m9 does not.
  made.options.timings.pace = 18;
  EXPECT_EQ(violations(made.run().value().applications[0]), 3U) << "once for each request";
  made.input.applications[0].nodes.pop_back();
  EXPECT_EQ(violations(made.run().value().applications[0]), 0U);
}

TEST(SimulatedApplications, StagesFollowEachOther) {
  const std::vector<DemandNode> chain{{"a", "m0"}, {"b", "m1", 1, {0}}, {"c", "m2", 1, {1}}};
  const std::vector<DemandNode> beside{{"a", "m0"}, {"b", "m1"}, {"c", "m2"}};
  Served made = served(4, 3, {{"app", 5, 300, chain}});
  const std::vector<schedule::ModelDemand> planned = made.planned();
  EXPECT_NEAR(planned[0].slo_ms + planned[1].slo_ms + planned[2].slo_ms, 300, 0.01);
  EXPECT_LT(planned[0].slo_ms, planned[2].slo_ms) << "in proportion to the latencies";
  const double one_after_another = response_ms(made, "app");
  made.input.applications[0].nodes = beside;
  EXPECT_EQ(made.planned()[0].slo_ms, kModelSloMs) << "the model's own, which is smaller";
  EXPECT_LT(response_ms(made, "app"), one_after_another);
}

TEST(SimulatedApplications, OverloadIsCountedOncePerRequest) {
  Served made = served(1, 2, {{"game", 10, 100, {{"digits", "m0", 6}, {"scene", "m1"}}}});
  made.options.trace = std::make_shared<const config::Trace>(
      config::parse_trace("time_s,model,rate\n0,game,2000\n", "f").value());
  made.options.seconds = 3;
  const ModelOutcome game = made.run().value().applications[0];
  EXPECT_GT(game.violation, 0.5);
  EXPECT_LE(game.violation, 1);
  EXPECT_EQ(game.offered, game.served + game.dropped + game.errors);
}

TEST(SimulatedApplications, EqualSeedsGiveEqualRuns) {
  Served made =
      served(3, 3,
             {{"traffic", 60, 150, {{"d", "m2"}, {"v", "m0", 1, {0}}, {"p", "m1", 1, {0}}}},
              {"game", 30, 100, {{"digits", "m0", 6}, {"scene", "m1"}}}});
  made.input.demands[1].rate = 20;
  made.options.keep_plan = false;
  made.options.series_step = std::chrono::seconds(5);
  const Outcome first = made.run().value();
  const Outcome second = made.run().value();
  EXPECT_EQ(first.models, second.models);
  EXPECT_EQ(first.applications, second.applications);
  EXPECT_EQ(first.series, second.series);
  EXPECT_EQ(first.events, second.events);
  made.options.seed = 2;
  EXPECT_NE(made.run().value().applications, first.applications);
  std::uint64_t offered = 0;
  for (const SeriesRow& row : first.series) {
    ASSERT_EQ(row.offered.size(), 5U);
    EXPECT_EQ(row.batch_run.size(), 3U);
    offered += row.offered[3];
  }
  EXPECT_EQ(offered, first.applications[0].offered);
}

TEST(SimulatedApplications, ErrorsNameTheApplicationAndTheFix) {
  const auto error = [](const Served& made) {
    const Status status = made.run().status();
    EXPECT_EQ(status.code(), StatusCode::invalid);
    return status.message();
  };
  EXPECT_TRUE(names(error(served(1, 1, {{"app", 1, 50, {{"a", "other"}}}})), "app", "other"));
  EXPECT_TRUE(names(error(served(1, 1, {{"m0", 1, 50, {{"a", "m0"}}}})), "m0"));
  EXPECT_TRUE(names(error(served(1, 1, {{"app", 1, 2, {{"a", "m0"}}}})), "app", "slo_ms"));
  Served made = served(1, 1, {{"app", 1, 50, {{"a", "m0"}}}});
  made.options.leave_waiting = true;
  EXPECT_TRUE(names(error(made), "applications"));
  made.options.leave_waiting = false;
  made.options.trace = trace("0,apq,1\n");
  EXPECT_TRUE(names(error(made), "apq"));
}

// ---- properties

// A graph of calls of these models; every node may follow any of the earlier ones.
std::vector<DemandNode> generated_nodes(std::size_t models) {
  std::vector<DemandNode> nodes;
  const auto count = *rc::gen::inRange<std::size_t>(1, 5);
  for (std::size_t i = 0; i < count; ++i) {
    DemandNode& node = nodes.emplace_back();
    node.name = "n" + std::to_string(i);
    node.model = "m" + std::to_string(*rc::gen::inRange<std::size_t>(0, models));
    node.count = *rc::gen::inRange(1U, 4U);
    for (std::size_t before = 0; before < i; ++before) {
      if (*rc::gen::arbitrary<bool>()) node.after.push_back(before);
    }
  }
  return nodes;
}

RC_GTEST_PROP(SimulatedApplicationsProperty, OneCallServesAsItsModelDoes, ()) {
  std::string rows;
  double at_s = 0;
  for (int i = *rc::gen::inRange(1, 150); i > 0; --i) {
    at_s += 0.001 * *rc::gen::inRange(0, 60);
    rows += std::to_string(at_s) + ",NAME," + std::to_string(*rc::gen::inRange(1, 8)) + '\n';
  }
  const auto named = [&rows](const std::string& name) {
    std::string text = rows;
    for (std::size_t at = text.find("NAME"); at != std::string::npos; at = text.find("NAME"))
      text.replace(at, 4, name);
    return trace(text);
  };
  const double rate = *rc::gen::inRange(1, 200);
  Served direct = served(2, 1, {});
  direct.input.demands[0].rate = rate;
  direct.options.trace = named("m0");
  Served called = served(2, 1, {{"app", rate, kModelSloMs, {{"only", "m0"}}}});
  called.options.trace = named("app");
  direct.options.timings.pace = called.options.timings.pace = *rc::gen::element(1.0, 3.0, 20.0);
  RC_ASSERT(called.planned() == direct.planned());
  const ModelOutcome as_model = direct.run().value().models[0];
  const ModelOutcome as_application = called.run().value().applications[0];
  RC_ASSERT(as_application.offered == as_model.offered);
  RC_ASSERT(as_application.served == as_model.served);
  RC_ASSERT(as_application.late == as_model.late);
  RC_ASSERT(as_application.dropped == as_model.dropped);
  RC_ASSERT(as_application.errors == as_model.errors);
  RC_ASSERT(as_application.waiting == as_model.waiting);
  RC_ASSERT(as_application.slo_ms == as_model.slo_ms);
  RC_ASSERT(as_application.violation == as_model.violation);
  // The deadlines of calls are rounded to nanoseconds, which may move a response by as much.
  constexpr double kRoundingMs = 1e-3;
  RC_ASSERT(std::abs(as_application.mean_ms - as_model.mean_ms) < kRoundingMs);
  RC_ASSERT(std::abs(as_application.most_ms - as_model.most_ms) < kRoundingMs);
  RC_ASSERT(std::abs(as_application.deviation_ms - as_model.deviation_ms) < kRoundingMs);
}

RC_GTEST_PROP(SimulatedApplicationsProperty, PlansHaveTheRatesOfAllCalls, ()) {
  constexpr std::size_t kModels = 3;
  Served made = served(1, kModels, {});
  std::vector<double> expected(kModels, 0);
  for (std::size_t i = 0; i < kModels; ++i)
    made.input.demands[i].rate = expected[i] = *rc::gen::inRange(0, 50);
  for (int i = *rc::gen::inRange(1, 4); i > 0; --i) {
    const double rate = *rc::gen::inRange(0, 50);
    ApplicationDemand& application = made.input.applications.emplace_back(
        ApplicationDemand{"app" + std::to_string(i), rate, 1000, generated_nodes(kModels)});
    for (const DemandNode& node : application.nodes)
      expected[static_cast<std::size_t>(node.model[1] - '0')] += rate * node.count;
  }
  const std::vector<schedule::ModelDemand> planned = made.planned();
  for (std::size_t i = 0; i < kModels; ++i) {
    RC_ASSERT(planned[i].name == made.input.demands[i].name);
    RC_ASSERT(std::abs(planned[i].rate - expected[i]) < 1e-6);
    RC_ASSERT(planned[i].slo_ms <= kModelSloMs);
    RC_ASSERT(planned[i].slo_ms > 0);
  }
}

RC_GTEST_PROP(SimulatedApplicationsProperty, EveryRequestGetsOneResponse, ()) {
  Served made = served(static_cast<std::uint32_t>(*rc::gen::inRange(1, 4)), 3, {});
  for (schedule::ModelDemand& demand : made.input.demands) demand.rate = *rc::gen::inRange(0, 50);
  for (int i = *rc::gen::inRange(1, 3); i > 0; --i) {
    made.input.applications.push_back({"app" + std::to_string(i),
                                       static_cast<double>(*rc::gen::inRange(0, 100)), 600,
                                       generated_nodes(3)});
  }
  made.options.seconds = 3;
  made.options.seed = *rc::gen::arbitrary<std::uint64_t>();
  made.options.keep_plan = *rc::gen::arbitrary<bool>();
  made.options.frontends = *rc::gen::element(1U, 3U);
  const Result<Outcome> outcome = made.run();  // fails if a request gets no response
  if (!outcome.ok()) RC_FAIL(outcome.status().message());
  std::uint64_t offered = 0;
  for (const auto* list : {&outcome.value().models, &outcome.value().applications}) {
    for (const ModelOutcome& one : *list) {
      RC_ASSERT(one.offered == one.served + one.dropped + one.errors);
      RC_ASSERT(one.late <= one.served);
      RC_ASSERT(one.errors == 0 || !outcome.value().first_plan.schedulable() ||
                made.options.frontends > 1);
      offered += one.offered;
    }
  }
  RC_ASSERT(offered == outcome.value().requests);
}

}  // namespace
}  // namespace gpulet::simulate
