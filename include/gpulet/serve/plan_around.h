// A plan for a cluster of which some devices take no new gpulets (exclusions.h): what serves there
// stays as it is, and the other devices get the rest of the demand. Pure; any thread.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::serve {

// `input` has every device. `kept`: the parts of the plan in force that stay, all of them on
// `closed` devices and of models that are demanded. `plan` is asked for the rest, on the other
// devices.
[[nodiscard]] schedule::Plan plan_around(
    const schedule::PlanInput& input, const std::set<schedule::DeviceKey>& closed,
    std::vector<schedule::PlannedGpulet> kept,
    const std::function<schedule::Plan(const schedule::PlanInput&)>& plan);

}  // namespace gpulet::serve
