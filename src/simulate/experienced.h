// What a plan's batches take in the simulation, whatever the plan expects of them. Pure; any
// thread.
#pragma once

#include "gpulet/schedule/plan.h"
#include "gpulet/simulate/simulation.h"

namespace gpulet::simulate {

// The plan with the latencies of its full batches alone, times the slowdown that they cause each
// other (Knowledge::simulated). Of gpulets on a device that the cluster lacks, or of models without
// a profile, the plan's own latencies stay.
[[nodiscard]] schedule::Plan as_experienced(schedule::Plan plan, const schedule::Cluster& cluster,
                                            const Knowledge& knowledge);

}  // namespace gpulet::simulate
