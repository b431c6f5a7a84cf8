// The way from what serves to a plan where MIG divides devices: an instance takes the place of
// others only when these have gone, so it may need plans in between (mig/transition.h). Each of
// them can be rolled out beside the one before it without stopping anything that is still needed.
// Pure; any thread.
#pragma once

#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/mig/transition.h"
#include "gpulet/schedule/cluster.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::schedule {

struct StagedPlan {
  // One for each stage, the last of them `to`. Without MIG, or where one step does it, `to` alone.
  std::vector<Plan> plans;
  // What the stages are made of: devices that MIG divides, and models as services.
  mig::TransitionTask task;
  mig::Transition transition;
};

// Gpulets of one instance are one there, with their rates added up; devices that MIG does not
// divide take part with `to`, from the first stage on. Instances may be put for a while on any
// device of the cluster that MIG divides. Fails with unavailable where too few are free
// (mig::plan_transition), and with invalid for instances that the cluster's devices cannot have.
[[nodiscard]] Result<StagedPlan> stage_plan(const Plan& from, const Plan& to,
                                            const Cluster& cluster);

}  // namespace gpulet::schedule
