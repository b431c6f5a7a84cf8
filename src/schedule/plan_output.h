// The last step of every policy: from placed models to a Plan. Each gpulet gets its duty cycle and
// batches, each device of a builder becomes a real device, and each unserved rate gets its reason.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "gpulet/schedule/plan.h"
#include "schedule/duty_cycle.h"
#include "schedule/plan_builder.h"
#include "schedule/plan_context.h"

namespace gpulet::schedule {

// The plan of a finished builder.
[[nodiscard]] Plan finish(std::string_view policy, const PlanBuilder& builder);

// The real device of each builder device, parallel to builder.devices(): an index into
// PlanContext::devices, each at most once and of the same class; meaningless for devices that are
// not in use.
//
// Devices of one class are interchangeable. With a plan in force, a builder device becomes the real
// one that already has the same gpulets (sizes and models), else one that has its largest such
// gpulet; the others become free devices by key. Near linear in the number of gpulets.
[[nodiscard]] std::vector<std::uint32_t> assign_devices(const PlanBuilder& builder);

// What a gpulet of that size (an index into the class's sizes) does for one model in batches of up
// to `batch`. Where the gpulet has several processes, they are identical and this is one of them.
[[nodiscard]] Assignment assignment_of(const PlanContext& context, std::size_t device_class,
                                       std::size_t size, const BatchSlot& slot,
                                       std::uint32_t batch);

// Replaces gpulets that differ from one of the plan in force by rounding alone, because they were
// computed on another path, with the one in force. Does nothing without a plan in force.
void keep_unchanged_gpulets(const PlanContext& context, std::vector<PlannedGpulet>& gpulets);

// Adds the unplaced rates (parallel to PlanContext::models) to plan->unserved, each with
// reason(model, rate).
template <typename Reason>
void list_unserved(const PlanContext& context, std::span<const double> unplaced,
                   const Reason& reason, Plan* plan) {
  for (std::size_t model = 0; model < unplaced.size(); ++model) {
    if (unplaced[model] <= 0) continue;
    plan->unserved.push_back(
        {context.models()[model]->name, unplaced[model], reason(model, unplaced[model])});
  }
}

}  // namespace gpulet::schedule
