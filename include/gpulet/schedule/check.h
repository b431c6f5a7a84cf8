// Verifies a plan against the rules of docs/scheduling.md. Shares no code with the policies beyond
// the profile's lookup, so that an error in one does not hide in the other. The daemon rejects a
// plan that fails. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// Numbers whose relative difference is below this are equal: it covers rounding and nothing else.
inline constexpr double kCheckTolerance = 1e-6;
// With random arrivals, a batch may get so many times more than it holds: planners estimate that.
inline constexpr double kArrivalsTolerance = 1.1;

// The violations, each a sentence that names the gpulet, the model and the two numbers compared.
// Empty where the plan keeps every rule:
//  - every gpulet is on a device of the cluster and has one of its sizes; the sizes of a device add
//    up to at most 100 and their number to at most max_partitions; the plan uses at most
//    options.max_devices devices
//  - under MIG: every gpulet names an instance that the device can have, of its size; instances
//    share no memory slice; an instance has at most processes_per_instance gpulets, all of the same
//    models, holds their memory, and counts once as a share
//  - latency_ms = L(batch, size) * slowdown * margin, slowdown >= 1
//  - where input.interference has a model of the device type: the slowdown is at least its
//    prediction for the planned batches, the worst of each neighbouring gpulet, added up over the
//    neighbours
//  - sum of latency_ms <= duty_cycle_ms; duty_cycle_ms + latency_ms <= slo_ms
//  - with Headroom::none: rate * duty_cycle_ms / 1000 <= batch
//  - with Headroom::poisson: at most kMostLateByChance of the requests are late by chance
//  - at most kMostModelsOfGpulet models per gpulet and kMostGpuletsOfNode gpulets per node
//  - batch <= max_batch of the demand; every gpulet has a model, and none twice; a demand with
//    `alone` shares no gpulet
//  - the models on a device fit its memory, where both are known; each gpulet loads its own copy
//  - assigned + unserved = demanded for every model, and nothing else is assigned
//  - the plan without spare share (scaling.h) keeps every rule as well
//  - instances without rounds (Service) have no rate and a batch of 1
[[nodiscard]] std::vector<std::string> check(const Plan& plan, const PlanInput& input);

}  // namespace gpulet::schedule
