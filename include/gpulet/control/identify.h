// What a plant is: by a run in which its cores were changed, or by what is known of the queue
// before it. Source: ROMA, section 4 (k and b "by fitting measured responses to those of the
// dynamic model"; equation 6). Pure; any thread.
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

// Of a queue that is held at its set point, where as many requests are answered as arrive and cores
// are what they take: the wait grows by (period / cores) for a core less, whatever the model. What
// a period's answers have waited is the mean over the period, hence half of that at once, k =
// period / (2 cores), and half a period later, b = -1. Where executables on several nodes serve one
// queue and follow its response time, that is what all of them together do; a GPU that takes a part
// of the requests makes the gain smaller by that part. (Equation 6 has all of it, and more, at
// once; that holds where a response time is worked out of a queue's length, not where it is
// measured.)
[[nodiscard]] Plant plant_of_queue(double period_s);

}  // namespace gpulet::control
