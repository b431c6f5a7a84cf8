// Executables: gpulets of which a plan promises nothing, since what they do is decided from request
// to request and their cores from second to second (docs/control.md). A GPU has one that holds all
// models, a CPU one for each model. Source: ROMA, section 2.2. Pure; any thread.
#pragma once

#include "gpulet/schedule/cluster.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

[[nodiscard]] inline bool is_cpu(const Device& device) { return device.cores > 0; }

// What a plan says an executable of a CPU has: enough to come into being. Its controller gives it
// cores from then on, and it stays the same executable whatever they are.
inline constexpr Share kControlledShare{1};

// Adds to the plan, on each CPU, one for each model that is demanded, its profile knows and its
// memory has room for, in the order of the names. The plan's gpulets are by device then.
void add_cpu_executables(const PlanInput& input, Plan& plan);

// Its devices that are no CPUs.
[[nodiscard]] Cluster without_cpus(const Cluster& cluster);

}  // namespace gpulet::schedule
