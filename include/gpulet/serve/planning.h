// One plan, made and checked: what every host does for a MakePlan. Pure; any thread.
#pragma once

#include "gpulet/profile/profile.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::serve {

// Input that no policy should see comes back as a fault, like a plan that fails the checker.
[[nodiscard]] PlanMade make_plan(const MakePlan& request, const schedule::Policy& policy,
                                 const profile::ProfileSet& profiles);

}  // namespace gpulet::serve
