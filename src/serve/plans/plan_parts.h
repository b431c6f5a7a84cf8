// The part of a plan that a gpulet receives, and the share whose latencies it has. Pure functions.
#pragma once

#include "gpulet/protocol/messages.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::serve {

// The size whose latency a gpulet of that size has.
[[nodiscard]] inline Share measured_size(Share size, schedule::Service service) {
  return service == schedule::Service::controlled ? kWholeDevice : size;
}

[[nodiscard]] inline PlanPart part_for(const schedule::PlannedGpulet& planned) {
  return {planned.duty_cycle_ms, planned.assignments, planned.service, planned.policy_choice};
}

}  // namespace gpulet::serve
