// A demand that is more than the devices serve. Policies leave whole models without a place then,
// which ones is chance; here the shortage is shared: no model gets more device time than it needs,
// and whoever gets less than it needs gets as much as anybody (max-min fairness over device time).
// So a model whose load explodes costs those nothing that stay within their part. Pure; any thread.
#pragma once

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// The policy's plan for the largest fair part of the demand that it finds a place for, by bisection
// over the device time of a model; what is not covered is `unserved`. `whole`: its plan for the
// whole demand, which comes back where it serves everything, or where no part is served better.
// REQUIRES: validate(input) is ok.
[[nodiscard]] Plan share_shortage(const Policy& policy, const PlanInput& input, Plan whole);

}  // namespace gpulet::schedule
