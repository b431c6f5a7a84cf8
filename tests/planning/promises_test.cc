// Plans that are called schedulable keep every model's objective when they are simulated, on
// made-up devices. bench_promises does the same for hundreds of worlds and more policies.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gpulet/planning/pipeline.h"
#include "gpulet/simulate/simulation.h"
#include "tests/verify/made_up_world.h"

namespace gpulet::simulate {
namespace {

struct Scene {
  explicit Scene(std::uint64_t number, bool neighbours)
      : world(schedule::testing::made_up_world(
            number,
            {.most_models = 6, .most_devices = 4, .varies = true, .neighbours = neighbours})) {
    knowledge.profiles = world.profiles;
    knowledge.simulated = simulated_interference(*world.profiles);
    knowledge.believed = simulated_interference(*world.known);
    input.cluster = world.cluster;
    input.demands = world.demands;
    input.profiles = world.profiles.get();
    input.interference = knowledge.believed.get();
  }
  // As the frontend of a simulation that keeps its first plan.
  [[nodiscard]] planning::PlanRequest request() const {
    planning::PlanRequest request;
    request.cluster = input.cluster;
    request.demands = input.demands;
    request.options = input.options;
    request.profiles = knowledge.profiles;
    request.interference = knowledge.believed;
    request.scale = false;
    return request;
  }
  schedule::testing::MadeUpWorld world;
  Knowledge knowledge;
  schedule::PlanInput input;
};

class Promises : public ::testing::TestWithParam<int> {};

TEST_P(Promises, AreKept) {
  Scene scene(static_cast<std::uint64_t>(GetParam()), false);
  const schedule::PlanInput& input = scene.input;
  for (const char* const name : {"elastic", "sbp"}) {
    const auto policy = schedule::make_policy(name).value();
    const planning::PlanResult made = planning::make_plan(scene.request(), *policy);
    EXPECT_EQ(made.faults, std::vector<std::string>());
    EXPECT_EQ(made.plan, planning::make_plan(scene.request(), *policy).plan);
    if (!made.plan.schedulable()) continue;
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
