// Spare share: the share of the devices in use that no gpulet of a plan needs. A policy leaves it
// free, or gives it to a gpulet because no other could use it. use_spare() divides it between the
// gpulets of the device, whose batches then run faster, and the next plan takes it back where a
// gpulet needs it.
//
// Policies never see it: their plan in force is the one without spare share. So a plan serves the
// same rates on the same devices with and without it. Pure; any thread.
#pragma once

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// Divides the spare share of the plan's devices and plans the rounds there again. `plan` is the
// policy's for `input`; input.current may have spare share.
//
// Every rule of check() still holds, and every gpulet keeps its device, models and rates;
// PlannedGpulet::policy_choice says what the policy chose. The share goes to the gpulet that is
// nearest to its limits, step by step, as long as a larger size is worthwhile: first to the one
// whose round holds the smallest bursts (burst_tolerant_round), then to the one whose requests take
// the longest part of their SLO. A gpulet gets less than the policy chose only where the worst
// gpulet of the device improves and their times, as a geometric mean, do not get longer.
//
// A gpulet with the same device and models in input.current keeps its size as long as the others
// leave room for it, because another size costs a new process. So a plan that is in force is
// returned unchanged. Devices divided by MIG, CPUs beside GPUs, and instances without rounds stay
// as they are.
[[nodiscard]] Plan use_spare(const PlanInput& input, Plan plan);

// The plan in force as a policy should see it: without spare share, but with the sizes that
// gpulets need for higher rates where they already have them. REQUIRES: input.current is not null.
[[nodiscard]] Plan with_grown_needs(const PlanInput& input);

// What the policy chose.
[[nodiscard]] PlannedGpulet without_spare(PlannedGpulet gpulet);
[[nodiscard]] Plan without_spare(Plan plan);

}  // namespace gpulet::schedule
