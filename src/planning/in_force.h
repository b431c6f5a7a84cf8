// The plan in force as an answer to a new demand. Pure; any thread.
#pragma once

#include <optional>

#include "gpulet/schedule/policy.h"

namespace gpulet::planning {

// input.current with the rates of input.demands, which the gpulets of a model share as they do now.
// Without the models that are no longer demanded. Empty where there is no plan in force, where it
// has no gpulet for a model, or where it breaks a rule at these rates.
[[nodiscard]] std::optional<schedule::Plan> in_force_for(const schedule::PlanInput& input);

}  // namespace gpulet::planning
