// A made-up world as plans and simulations take it: batches slow each other down as in the world,
// and plans believe what they know of it. For tests and benches.
#pragma once

#include <cstdint>

#include "gpulet/planning/pipeline.h"
#include "gpulet/simulate/simulation.h"
#include "tests/verify/made_up_world.h"

namespace gpulet::simulate::testing {

struct SimulatedWorld {
  SimulatedWorld(std::uint64_t number, const schedule::testing::WorldShape& shape)
      : world(schedule::testing::made_up_world(number, shape)) {
    knowledge.profiles = world.profiles;
    knowledge.simulated = simulated_interference(*world.profiles);
    knowledge.believed = simulated_interference(*world.known);
    input.cluster = world.cluster;
    input.demands = world.demands;
    input.profiles = world.profiles.get();
    input.interference = knowledge.believed.get();
  }
  // What a simulated frontend asks for at its start. `scale`: it does not keep its first plan.
  [[nodiscard]] planning::PlanRequest request(bool scale) const {
    planning::PlanRequest request;
    request.cluster = input.cluster;
    request.demands = input.demands;
    request.options = input.options;
    request.profiles = knowledge.profiles;
    request.interference = knowledge.believed;
    request.scale = scale;
    return request;
  }

  schedule::testing::MadeUpWorld world;
  Knowledge knowledge;
  schedule::PlanInput input;
};

}  // namespace gpulet::simulate::testing
