// What serving showed of the profiles and the devices, as planning sees it. Pure; any thread.
#pragma once

#include <optional>

#include "gpulet/planning/pipeline.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::planning {

// The plan in force as an answer to a new demand. Pure; any thread.

// input.current with the rates of input.demands, which the gpulets of a model share as they do now.
// Without the models that are no longer demanded. Empty where there is no plan in force, where it
// has no gpulet for a model, or where it breaks a rule at these rates.
[[nodiscard]] std::optional<schedule::Plan> in_force_for(const schedule::PlanInput& input);

struct Observed {
  schedule::Cluster cluster;
  profile::ProfileSet profiles;
  profile::InterferenceSet interference;
};

// The request's cluster and profiles, corrected, where slow devices and those of nodes on which
// models keep failing have types of their own. Empty: nothing differs from the profiles.
[[nodiscard]] std::optional<Observed> observed(const PlanRequest& request);

}  // namespace gpulet::planning
