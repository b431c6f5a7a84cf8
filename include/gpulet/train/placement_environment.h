// What a placement is learned in (InSS, section 5.2): at each step every model has another rate,
// the chosen places become a plan by the batch search, and the plan serves Poisson arrivals at
// those rates for a while in the simulator (simulate/simulation.h). One thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "gpulet/learn/placement_task.h"
#include "gpulet/simulate/simulation.h"
#include "gpulet/train/environment.h"

namespace gpulet::train {

struct PlacementOptions {
  std::uint32_t steps = 50;       // of an episode
  double seconds = 1;             // simulated at each step
  double violation_weight = 100;  // omega
  // Of its highest rate: each model's moves between this and 1 in a wave of its own, whose period
  // (in steps) and phase are drawn for every episode.
  double lowest_rate = 0.05;
  double shortest_period = 10;
  double longest_period = 100;
};

// The reward of a step (equation 3): of every model what it served within the objective, in units
// of what a whole device alone serves one by one (H), less violation_weight times the part of its
// requests that was not. `task` is that of `scene`, `knowledge.policy` is not looked at; what they
// point to outlives the environment. A plan that the checker refuses ends the program: a bug.
[[nodiscard]] std::unique_ptr<Environment> make_placement_environment(
    learn::PlacementTask task, simulate::Scene scene, simulate::Knowledge knowledge,
    const PlacementOptions& options = {});

}  // namespace gpulet::train
