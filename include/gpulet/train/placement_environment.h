// The environment of learned placement (InSS, section 5.2). At each step every model has another
// rate, the batch search turns the chosen placements into a plan, and the simulator serves Poisson
// arrivals at those rates with it (simulate/simulation.h). One thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "gpulet/learn/placement.h"
#include "gpulet/simulate/simulation.h"
#include "gpulet/train/training.h"

namespace gpulet::train {

struct PlacementOptions {
  std::uint32_t steps = 50;       // per episode
  double seconds = 1;             // simulated per step
  double violation_weight = 100;  // omega
  // Each model's rate is a wave between lowest_rate and 1 of its highest rate. Its period (steps)
  // and phase are sampled per episode.
  double lowest_rate = 0.05;
  double shortest_period = 10;
  double longest_period = 100;
};

// The reward of a step (equation 3), summed over the models: the rate served within the objective,
// in units of the rate of a whole device that serves one by one (H), minus violation_weight times
// the fraction of requests not served within it. `task` must be the task of `scene`;
// `knowledge.policy` is ignored; pointees must outlive the environment. Throws std::logic_error (a
// bug) if the checker rejects a plan.
[[nodiscard]] std::unique_ptr<Environment> make_placement_environment(
    learn::PlacementTask task, simulate::SimulationInput scene, simulate::Knowledge knowledge,
    const PlacementOptions& options = {});

}  // namespace gpulet::train
