#include "serve/plans/plan_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <iterator>
#include <utility>
#include <vector>

#include "gpulet/schedule/mig.h"
#include "gpulet/schedule/reconcile.h"

namespace gpulet::serve {
namespace {

// How long to wait for gpulets that are retired to leave their MIG instances. A backend that takes
// longer is not expected to end them at all.
constexpr Duration kInstancesFreeWithin = std::chrono::seconds(30);

}  // namespace

void PlanStages::begin(schedule::Plan plan, Time now, FrontendEffects& effects) {
  schedule::Plan serving;
  for (const auto& [id, planned] : deployment_.in_force().serving())
    serving.gpulets.push_back(planned);
  auto staged = schedule::stage_plan(serving, plan, fleet_.backends().cluster());
  if (!staged.ok()) {
    journal_.note(true, "the plan cannot come into force in stages: " + staged.status().message(),
                  now, effects);
    deployment_.begin({std::move(plan)});
    return;
  }
  std::vector<schedule::Plan>& plans = staged.value().plans;
  if (plans.size() > 1) {
    journal_.note(false, fmt::format("the plan comes into force in {} stages", plans.size()), now,
                  effects);
  }
  deployment_.begin({std::make_move_iterator(plans.begin()), std::make_move_iterator(plans.end())});
}

void PlanStages::advance(Time now, FrontendEffects& effects) {
  if (!deployment_.rollout()) start_next(now, effects);
  rollouts_.advance(now, effects);
}

void PlanStages::start_next(Time now, FrontendEffects& effects) {
  const std::deque<schedule::Plan>& stages = deployment_.stages();
  if (stages.empty()) return;
  schedule::Steps steps = schedule::reconcile(inputs_.running_gpulets(), stages.front());
  if (waits_for_instances(stages.front(), steps)) {
    if (!waits_since_) waits_since_ = now;
    if (now - *waits_since_ < kInstancesFreeWithin) return;
    // FailureHandler excludes the device of a gpulet that does not end, so a new plan avoids it.
    waits_since_.reset();
    deployment_.abandon(Abandoned::still_occupied);
    journal_.request_urgent_plan("gpulets did not leave their MIG instances in time");
    return;
  }
  waits_since_.reset();
  rollouts_.begin(deployment_.take_stage(), std::move(steps), now, effects);
}

bool PlanStages::waits_for_instances(const schedule::Plan& plan,
                                     const schedule::Steps& steps) const {
  return std::any_of(steps.create.begin(), steps.create.end(), [&](std::size_t index) {
    const schedule::PlannedGpulet& planned = plan.gpulets[index];
    const DeviceOffer* const offer = fleet_.backends().offer_of(planned.device);
    if (!planned.instance || offer == nullptr || !offer->device.mig) return false;
    return std::any_of(
        fleet_.backends().gpulets().begin(), fleet_.backends().gpulets().end(),
        [&](const auto& entry) {
          const GpuletRecord& gpulet = entry.second;
          return gpulet.retiring && gpulet.instance && gpulet.device == planned.device &&
                 (gpulet.instance == planned.instance ||
                  !offer->device.mig->compatible(*gpulet.instance, *planned.instance));
        });
  });
}

void PlanStages::release_draining(FrontendEffects& effects) {
  for (const auto& [id, gpulet] : fleet_.backends().gpulets()) {
    if (fleet_.backends().backends().at(gpulet.backend).leaving)
      deployment_.gpulets().retire(id, effects);
  }
}

}  // namespace gpulet::serve
