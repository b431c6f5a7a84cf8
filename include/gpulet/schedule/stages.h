// The stages from the running plan to a new one where MIG divides devices. An instance can replace
// others only after they are gone, so intermediate plans may be needed (mig_transition.h). Each can
// be rolled out next to the previous one without stopping anything that is still needed. Pure; any
// thread.
#pragma once

#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/schedule/mig_transition.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::schedule {

struct StagedPlan {
  // One per stage; the last is `to`. Only `to` without MIG or where one step is enough.
  std::vector<Plan> plans;
  // The problem that was solved: the devices that MIG divides, and the models as services.
  schedule::mig::TransitionTask task;
  schedule::mig::Transition transition;
};

// In `task`, the gpulets of one instance count as one with the sum of their rates. Devices without
// MIG take their gpulets of `to` from the first stage on. Temporary instances may be on any device
// of the cluster that MIG divides. Fails with unavailable where too few of them are free
// (schedule::mig::plan_transition), and with invalid for instances that the cluster's devices
// cannot have.
[[nodiscard]] Result<StagedPlan> stage_plan(const Plan& from, const Plan& to,
                                            const Cluster& cluster);

}  // namespace gpulet::schedule
