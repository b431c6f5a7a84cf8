// Holds a plan against the rules of docs/scheduling.md, written apart from every policy: it shares
// no code with them beyond the profile's lookup. The daemon refuses a plan that fails it. Pure.
#pragma once

#include <string>
#include <vector>

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// Two numbers that differ by less than this fraction of the larger are the same: room for rounding,
// no more.
inline constexpr double kCheckTolerance = 1e-6;

// What is wrong, each in a sentence that names gpulet, model and the two numbers compared. Empty:
// the plan holds.
//  - every gpulet is on a device of the cluster, of a size it lists; sizes of a device add up to at
//    most 100, their number to at most max_partitions; at most options.max_devices are used
//  - where MIG divides the device: every gpulet names an instance that the device can have, of its
//    size; no two instances share a memory slice; an instance has at most processes_per_instance
//    gpulets, all of the same models, whose memory it holds, and counts once as a share
//  - latency_ms = L(batch, size) * slowdown * margin, slowdown >= 1
//  - where input.interference models the device type: slowdown is no less than what it predicts
//    for the planned batches, the worst of each neighbouring gpulet's, summed over the neighbours
//  - sum of latency_ms <= duty_cycle_ms; rate * duty_cycle_ms / 1000 <= batch; duty_cycle_ms +
//    latency_ms <= slo_ms
//  - with Headroom::poisson: of a Poisson stream of that rate at most kMostLateByChance is late
//    (src/schedule/headroom.h has the formula; it is worked out apart here)
//  - no gpulet has more than kMostModelsOfGpulet models, no node more than kMostGpuletsOfNode
//  gpulets
//  - batch <= the demand's max_batch; no model twice in one gpulet, and none without a model
//  - the memory of the models on a device fits it, where profile and device know theirs; every
//    gpulet loads its own copy of its models
//  - assigned + unserved = demanded, for every model; nothing is assigned that was not demanded
[[nodiscard]] std::vector<std::string> check(const Plan& plan, const PlanInput& input);

}  // namespace gpulet::schedule
