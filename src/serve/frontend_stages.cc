// FrontendCore: the stages of a plan where MIG divides devices (schedule/stages.h). Each is rolled
// out like a plan, when what it creates has nothing in its way any more.
#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "gpulet/schedule/reconcile.h"
#include "gpulet/schedule/stages.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::serve {

std::deque<schedule::Plan> FrontendCore::stages_to(schedule::Plan plan, Time now,
                                                   FrontendEffects& effects) {
  schedule::Plan serving;
  for (const auto& [id, planned] : serving_) serving.gpulets.push_back(planned);
  auto staged = schedule::stage_plan(serving, plan, fleet_.cluster());
  if (!staged.ok()) {
    note(true, "the plan cannot come into force in stages: " + staged.status().message(), now,
         effects);
    return {std::move(plan)};
  }
  std::vector<schedule::Plan>& plans = staged.value().plans;
  if (plans.size() > 1) {
    note(false, "the plan comes into force in " + std::to_string(plans.size()) + " stages", now,
         effects);
  }
  return {std::make_move_iterator(plans.begin()), std::make_move_iterator(plans.end())};
}

void FrontendCore::follow_stages(Time now, FrontendEffects& effects) {
  if (rollout_ || stages_.empty()) return;
  schedule::Steps steps = schedule::reconcile(running_gpulets(), stages_.front());
  if (waits_for_instances(stages_.front(), steps)) return;
  schedule::Plan next = std::move(stages_.front());
  stages_.pop_front();
  begin_rollout(std::move(next), std::move(steps), now, effects);
}

// For gpulets that were told to go and have not gone yet.
bool FrontendCore::waits_for_instances(const schedule::Plan& plan,
                                       const schedule::Steps& steps) const {
  return std::any_of(steps.create.begin(), steps.create.end(), [&](std::size_t index) {
    const schedule::PlannedGpulet& planned = plan.gpulets[index];
    const DeviceOffer* const offer = fleet_.offer_of(planned.device);
    if (!planned.instance || offer == nullptr || !offer->device.mig) return false;
    return std::any_of(fleet_.gpulets().begin(), fleet_.gpulets().end(), [&](const auto& entry) {
      const FleetGpulet& there = entry.second;
      return there.retiring && there.instance && there.device == planned.device &&
             (there.instance == planned.instance ||
              !offer->device.mig->compatible(*there.instance, *planned.instance));
    });
  });
}

}  // namespace gpulet::serve
