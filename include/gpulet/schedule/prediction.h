// Predicts which fraction of the requests of a plan's models will violate their SLO by chance: the
// chain of ages (docs/scheduling.md, "Random arrivals") of every model in every gpulet. It knows
// that neighbours are not always busy, that batches are not always full, and the margin that the
// dispatcher reckons with. Pure; any thread.
#pragma once

#include <optional>
#include <vector>

#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// By gpulet and assignment, parallel to the plan: the predicted fraction of the assignment's
// requests that are dropped or late, 0 to 1, under Poisson arrivals at its rate. Empty where the
// plan promises nothing (Service) or a profile lacks the batch.
using PredictedViolations = std::vector<std::vector<std::optional<double>>>;

// `input`: what the plan was made from; its profiles give the times of batches and their spread,
// its interference the slowdowns. Each gpulet is predicted by itself: that several gpulets of a
// model share one queue, which mostly helps, is neglected. Takes 1 to 3 ms per device; devices with
// equal gpulets share the result.
[[nodiscard]] PredictedViolations predict_violations(const Plan& plan, const PlanInput& input);

}  // namespace gpulet::schedule
