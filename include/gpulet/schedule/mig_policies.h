// The policies for devices that are divided by MIG: MIG-serving's optimiser and its baselines
// (mig/optimise.h) between a PlanInput and a Plan. Every gpulet is one process in an instance of
// its own (or one of several of a model: Device::processes_per_instance) and has one model; what an
// instance serves follows from the same mathematics as any gpulet's rate (docs/scheduling.md).
// Devices that are not divided by MIG are left alone. With a plan in force, configurations go to
// the devices, and instances to the places, where most is there already.
#pragma once

#include <memory>

#include "gpulet/mig/optimise.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// mig-two-phase with another seed, more time or more threads than make_policy() gives it.
[[nodiscard]] std::unique_ptr<Policy> make_mig_two_phase(mig::TwoPhaseOptions options);

}  // namespace gpulet::schedule
