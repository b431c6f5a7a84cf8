// The stages of a transition as actions that run in parallel where nothing keeps them apart
// (MIG-serving, section 6, optimisations). Pure.
#pragma once

#include <vector>

#include "mig/transition_goal.h"

namespace gpulet::mig {

// REQUIRES: stages that lead from one deployment to the other and keep the rates.
[[nodiscard]] std::vector<Action> actions_of(const std::vector<Stage>& stages, const Goal& goal);

}  // namespace gpulet::mig
