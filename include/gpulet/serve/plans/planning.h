// The answer to MakePlan: the pipeline of plans (planning/pipeline.h), with models that share
// gpulets only in need, and new versions that get room only where nobody loses by it. Pure; any
// thread.
#pragma once

#include "gpulet/schedule/policy.h"
#include "gpulet/serve/values/frontend_events.h"

namespace gpulet::serve {

[[nodiscard]] PlanMade make_plan(const MakePlan& effect, const schedule::Policy& policy);

}  // namespace gpulet::serve
