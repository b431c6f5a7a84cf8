// The predicted violations of plans, fast and slow, against the simulated engine. bench_prediction
// does the same for many devices that are drawn at random.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/schedule/explanation.h"
#include "gpulet/simulate/simulation.h"
#include "serve/dispatch/queue_simulation.h"
#include "tests/support/serve/world.h"

namespace gpulet::simulate {
namespace {

class MadePlan : public schedule::Policy {
 public:
  explicit MadePlan(schedule::Plan plan) : plan_(std::move(plan)) {}
  [[nodiscard]] std::string_view name() const override { return "made"; }
  [[nodiscard]] bool scales() const override { return false; }
  [[nodiscard]] schedule::Plan plan(const schedule::PlanInput& /*input*/) const override {
    return plan_;
  }

 private:
  schedule::Plan plan_;
};

struct Compared {
  double fast = 0;
  double slow = 0;
  double engine = 0;
};

schedule::Plan with_rates(schedule::Plan plan, double factor) {
  for (schedule::PlannedGpulet& gpulet : plan.gpulets) {
    for (schedule::Assignment& one : gpulet.assignments) one.rate *= factor;
  }
  return plan;
}

double worst_of(const schedule::PredictedViolations& predicted) {
  double worst = 0;
  for (const auto& gpulet : predicted) {
    for (const auto& one : gpulet) worst = std::max(worst, one.value());
  }
  return worst;
}

// The violations of each model of elastic's plan, where all rates have risen until those of the
// worst one are predicted to be 2 %.
std::vector<Compared> compare(const std::map<std::string, double>& base_ms,
                              const std::vector<schedule::ModelDemand>& demands) {
  Knowledge knowledge;
  knowledge.profiles = std::make_shared<const profile::ProfileSet>(
      profile::ProfileSet{{"card", serve::testing::card_profile(base_ms)}});
  knowledge.believed = std::make_shared<const profile::InterferenceSet>();
  knowledge.simulated = simulated_interference(*knowledge.profiles);
  schedule::PlanInput input;
  input.cluster.devices = {{{"n0", 0}, "card", "mps", {{20}, {40}, {50}, {60}, {80}, {100}}}};
  input.demands = demands;
  input.profiles = knowledge.profiles.get();
  input.options.use_spare = false;  // the plan that is predicted is the one to run
  const schedule::Plan plan = schedule::make_policy("elastic").value()->plan(input);
  EXPECT_TRUE(plan.schedulable());
  double load = 1;
  double too_much = 4;
  while (too_much - load > 0.01) {
    const double middle = (load + too_much) / 2;
    const bool less =
        worst_of(schedule::predict_violations(with_rates(plan, middle), input)) < 0.02;
    (less ? load : too_much) = middle;
  }
  const MadePlan policy(plan);
  knowledge.policy = &policy;
  SimulationOptions options;
  options.seconds = 100;
  options.seed = 77;
  options.keep_plan = true;
  auto trace = std::make_shared<config::Trace>();
  for (const schedule::ModelDemand& demand : demands)
    trace->rates[demand.name] = {{0, demand.rate * load}};
  options.trace = trace;
  const Outcome outcome =
      simulate(knowledge, {input.cluster, input.demands, input.options}, options).value();
  const schedule::Plan loaded = with_rates(plan, load);
  const auto fast = schedule::predict_violations(loaded, input);
  const auto slow = serve::simulate_violations(loaded, input, {.requests = 60'000});
  EXPECT_EQ(slow, serve::simulate_violations(loaded, input, {.requests = 60'000}));
  std::vector<Compared> compared;
  for (std::size_t gpulet = 0; gpulet < plan.gpulets.size(); ++gpulet) {
    for (std::size_t one = 0; one < plan.gpulets[gpulet].assignments.size(); ++one) {
      for (const ModelOutcome& model : outcome.models) {
        if (model.name != plan.gpulets[gpulet].assignments[one].model) continue;
        compared.push_back({fast[gpulet][one].value(), slow[gpulet][one].value(), model.violation});
      }
    }
  }
  return compared;
}

TEST(Prediction, IsNearTheEngine) {
  const auto all = compare({{"a", 1}, {"b", 1.5}}, {{"a", 400, 40, 16}, {"b", 300, 50, 16}});
  ASSERT_EQ(all.size(), 2U);
  for (const Compared& one : all) {
    EXPECT_LE(one.fast, 2.5 * one.engine + 5e-4);
    EXPECT_GE(one.fast, one.engine / 2.5 - 5e-4);
    EXPECT_LE(one.slow, 1.7 * one.engine + 5e-4);
    EXPECT_GE(one.slow, one.engine / 1.7 - 5e-4);
  }
}

}  // namespace
}  // namespace gpulet::simulate
