// Predicts which fraction of the requests of a plan's models will violate their SLO by running each
// device of the plan for a number of requests: the dispatcher itself, and for everything around it
// the times of a profile. Slower and more exact than schedule::predict_violations(), without the
// processes, messages and reorganisations of the whole engine (simulate/simulation.h). Pure; any
// thread.
#pragma once

#include <cstdint>

#include "gpulet/schedule/explanation.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::serve {

struct QueueSimulationOptions {
  std::uint64_t requests = 100'000;  // arrive at each device, after some that are not counted
  std::uint64_t seed = 1;            // of arrivals and of the times of batches
};

// By gpulet and assignment, as predict_violations(); requests arrive as a Poisson process with the
// assignment's rate. Gpulets of one model on one device share its queue and have one result. Equal
// arguments give equal results. Takes about 50 ms per device.
[[nodiscard]] schedule::PredictedViolations simulate_violations(
    const schedule::Plan& plan, const schedule::PlanInput& input,
    const QueueSimulationOptions& options = {});

}  // namespace gpulet::serve
