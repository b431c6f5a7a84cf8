// Plans that are called schedulable keep every model's objective when they are simulated, on
// made-up devices. bench_promises does the same for hundreds of worlds and more policies.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gpulet/planning/pipeline.h"
#include "gpulet/simulate/simulation.h"
#include "gpulet/verify/verified_plan.h"
#include "tests/verify/simulated_world.h"

namespace gpulet::simulate {
namespace {

// Small, so that many fit into a test.
testing::SimulatedWorld small_world(std::uint64_t number, bool neighbours) {
  return {number, {.most_models = 6, .most_devices = 4, .varies = true, .neighbours = neighbours}};
}

class Promises : public ::testing::TestWithParam<int> {};

TEST_P(Promises, AreKept) {
  testing::SimulatedWorld scene = small_world(static_cast<std::uint64_t>(GetParam()), false);
  const schedule::PlanInput& input = scene.input;
  for (const char* const name : {"elastic", "sbp"}) {
    const auto policy = schedule::make_policy(name).value();
    const planning::PlanResult made = planning::make_plan(scene.request(false), *policy);
    EXPECT_TRUE(made.faults.empty()) << to_string(made.faults.front());
    EXPECT_EQ(made.plan, planning::make_plan(scene.request(false), *policy).plan);
    if (!made.plan.schedulable()) continue;
    EXPECT_TRUE(verify::Verifier(input).late_models(made.plan).empty());
    scene.knowledge.policy = policy.get();
    SimulationOptions options;
    options.seconds = 30;
    options.seed = static_cast<std::uint64_t>(GetParam());
    options.keep_plan = true;
    const auto outcome =
        simulate(scene.knowledge, {input.cluster, input.demands, input.options}, options);
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    for (const ModelOutcome& model : outcome.value().models)
      EXPECT_LE(model.violation, schedule::testing::most_violations_by_chance(model.offered))
          << name << ": " << model.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Promises, ::testing::Range(1, 13));

}  // namespace
}  // namespace gpulet::simulate
