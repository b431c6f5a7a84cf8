// What a plant is, from a run in which its cores were changed. Source: ROMA, section 4 (k and b "by
// fitting measured responses to those of the dynamic model"). Pure; any thread.
#pragma once

#include <span>

#include "gpulet/control/pole_placement.h"
#include "gpulet/core/status.h"

namespace gpulet::control {

// One control period, under load that does not change over the run.
struct Sample {
  double cores = 0;
  double response_s = 0;  // mean of what was answered in it
};

struct Identified {
  Plant plant;
  double explained = 0;  // of the response's changes, 0..1 (R squared)
};

// Least squares over r(t+1) - r(t) = -k u(t+1) + k b u(t) + c. Fails with invalid: fewer than eight
// samples, cores that never change, or a response that does not fall where cores rise.
[[nodiscard]] Result<Identified> identify(std::span<const Sample> run);

}  // namespace gpulet::control
