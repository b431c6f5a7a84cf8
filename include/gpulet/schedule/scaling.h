// What happens around a policy: how many devices a plan should use, how models share devices that
// are too few, and what becomes of share that no gpulet needs. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// The size of a plan: models times devices. Up to kSmallPlan it is small.
[[nodiscard]] inline std::size_t size_of(const PlanInput& input) {
  return input.cluster.devices.size() * input.demands.size();
}
inline constexpr std::size_t kSmallPlan = 500;

struct ScalingOptions {
  // Devices that the plan in force may use; empty: those that input.current uses, 0 without a plan.
  std::optional<std::uint32_t> in_use;
  // Devices are given back only where the remaining ones would serve this multiple of the demand;
  // at least 1. With 1 a device goes as soon as the demand no longer needs it, and comes
  // back with the next increase.
  double give_back_reserve = 1.1;
  std::uint32_t min_devices = 0;
};

struct ScalingResult {
  Plan plan;                  // for the demand itself
  std::uint32_t devices = 0;  // devices that the plan may use; the next call's in_use
  std::int64_t added = 0;     // devices beyond in_use; negative: given back
};

// The scaling loop of gpulet (ATC 2022), section 4.5, algorithm 2: starts with the devices in use
// and adds as few as serve the demand. Differences: it also gives devices back, with a reserve that
// keeps a demand near a threshold from moving a device back and forth. And the paper adds one
// device at a time; here a plan without a limit tells how many a policy takes by itself. A small
// plan then bisects for fewer. A large one does not: a plan that fails for lack of devices looks
// for a place for every rest, which costs many times as much as a plan that succeeds, and every
// policy opens a device only where the open ones have no place.
//
// The limit is input.options.max_devices, else the whole cluster. A plan with `unserved` is the
// paper's unschedulable event: the plan is the one at the limit. A demand that no number of devices
// serves (no profile, an unreachable SLO) ends there as well. All plans together keep the budget
// (PlanOptions::budget_ms). REQUIRES: validate(input) is ok.
[[nodiscard]] ScalingResult scale(const Policy& policy, const PlanInput& input,
                                  const ScalingOptions& options = {});

// Shares devices that are too few for the demand. A policy alone leaves arbitrary models entirely
// unserved; here every model gets the device time that it needs up to a common maximum (max-min
// fairness), so a model whose load explodes takes nothing from models within their fair part.
//
// Bisects over the maximum device time of a model and returns the policy's plan for the largest
// part of the demand that it can serve; the rest is `unserved`. The plans of the bisection share
// the budget (PlanOptions::budget_ms). Returns `whole`, the policy's plan for the whole demand,
// where that serves everything or where no part is served better. REQUIRES: validate(input) is ok.
[[nodiscard]] Plan share_shortage(const Policy& policy, const PlanInput& input, Plan whole);

// ---- spare
//
// Spare share: the share of the devices in use that no gpulet of a plan needs. A policy leaves it
// free, or gives it to a gpulet because no other could use it. use_spare() divides it between the
// gpulets of the device, whose batches then run faster, and the next plan takes it back where a
// gpulet needs it.
//
// Policies never see it: their plan in force is the one without spare share. So a plan serves the
// same rates on the same devices with and without it. Pure; any thread.

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
