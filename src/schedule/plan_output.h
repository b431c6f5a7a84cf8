// The last step of every policy: from placed models to a Plan. Each gpulet gets its duty cycle and
// batches, each device of a builder becomes a real device, and each unserved rate gets its reason.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/schedule/plan.h"
#include "schedule/duty_cycle.h"
#include "schedule/plan_builder.h"
#include "schedule/plan_context.h"

namespace gpulet::schedule {

// The plan of a finished builder, with an empty `policy`.
[[nodiscard]] Plan finish(const PlanBuilder& builder);
// The same after builder.use_spare_share().
[[nodiscard]] Plan finish_enlarged(PlanBuilder builder);

// The real device of each builder device, parallel to builder.devices(): an index into
// PlanContext::devices, each at most once and of the same class; meaningless for devices that are
// not in use.
//
// Devices of one class are interchangeable. With a plan in force, a builder device becomes the real
// one that already has the same gpulets (sizes and models), else one that has its largest such
// gpulet, else one that has a gpulet of the same models at another size; the others become free
// devices by key. Near linear in the number of gpulets.
[[nodiscard]] std::vector<std::uint32_t> assign_devices(const PlanBuilder& builder);

// Changes `real` (assign_devices) for the devices that MIG divides, so that as many running
// instances as possible stay unchanged: devices of a class are interchangeable, and so are layouts
// of the same instances. Returns the instance of each gpulet of the builder; empty for gpulets on
// other devices. REQUIRES: the builder's instances are legal on their devices.
[[nodiscard]] std::vector<std::optional<partition::MigInstance>> place_instances(
    const PlanBuilder& builder, std::vector<std::uint32_t>* real);

// The work of a gpulet of that size (an index into the class's sizes) for one model in batches of
// up to `batch`. Where the gpulet has several processes, they are identical and this is one of
// them.
[[nodiscard]] Assignment assignment_of(const PlanContext& context, std::size_t device_class,
                                       std::size_t size, const BatchSlot& slot,
                                       std::uint32_t batch);

// Replaces gpulets that differ from one of the plan in force by rounding alone, because they were
// computed on another path, with the one in force. Does nothing without a plan in force.
void keep_unchanged_gpulets(const PlanInput& input, std::vector<PlannedGpulet>& gpulets);

// Whether a gpulet of the plan has the model.
[[nodiscard]] bool serves(const Plan& plan, std::string_view model);

// Why a plan that uses `devices_used` devices does not serve `unserved` of the model's rate, in a
// sentence with a fix.
[[nodiscard]] std::string explain_unserved(const PlanContext& context, std::size_t model,
                                           double unserved, std::size_t devices_used);

// Gives each unserved rate of a plan that was put together from others its reason, with respect to
// all of the context's devices. A rate that differs from that of the plan in force by rounding
// alone becomes that one.
void explain_all_unserved(const PlanContext& context, Plan* plan);

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
