#include "serve/plans/plan_triggers.h"

#include <algorithm>
#include <utility>

#include "serve/adapt/trials.h"

namespace gpulet::serve {

void PlanTriggers::tick(bool refused, Time now) {
  if (auto deviation = demands_.above_plan())
    journal_.request_plan(std::move(deviation->why), std::move(deviation->model));
  const bool schedulable = deployment_.in_force().plan().schedulable();
  const bool period_over = now >= period_end_;
  const bool has_room = roomy();
  if (period_over || !has_room) {
    if (auto deviation = demands_.below_plan(has_room))
      journal_.request_plan(std::move(deviation->why), std::move(deviation->model));
  }
  if (!period_over) return;
  period_end_ = now + period_;
  if (!schedulable) journal_.request_plan("not every rate is served");
  if (trials_wait(models_, now)) journal_.request_plan("new models wait for room");
  if (refused) journal_.request_plan("the last plan was refused");
}

bool PlanTriggers::roomy() const {
  const schedule::Plan& plan = deployment_.in_force().plan();
  if (!plan.schedulable()) return false;
  const bool cpus = std::any_of(plan.gpulets.begin(), plan.gpulets.end(), [this](const auto& one) {
    const DeviceOffer* const offer = fleet_.backends().offer_of(one.device);
    return one.service == schedule::Service::rounds && offer != nullptr &&
           schedule::is_cpu(offer->device);
  });
  return !cpus || schedule::without_cpus(fleet_.backends().cluster()).devices.empty();
}

}  // namespace gpulet::serve
