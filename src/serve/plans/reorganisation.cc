#include "serve/plans/reorganisation.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/schedule/mig.h"
#include "serve/adapt/trials.h"
namespace gpulet::serve {

void ReorganisationController::plan_if_requested(Time now, FrontendEffects& effects) {
  if (!journal_.requests().any() || journal_.requests().pending() || deployment_.rollout()) return;
  if (!deployment_.stages().empty() && !journal_.requests().urgent()) return;  // they end soon
  if (options_.keep_plan && deployment_.in_force().epoch().value > 0) return;
  if (now < journal_.requests().gather_until()) return;
  const bool too_soon = now - last_plan_ < options_.least_between_plans;
  if (too_soon && !journal_.requests().urgent()) return;  // the next tick tries again
  schedule::Cluster cluster = path_.inputs.cluster();
  if (cluster.devices.empty()) return path_.stages.release_draining(effects);
  last_plan_ = now;
  deployment_.abandon(Abandoned::replanned);
  effects.emplace_back(path_.inputs.request(std::move(cluster), journal_.requests().begin(),
                                            path_.triggers.roomy(), now));
}

Time ReorganisationController::next_wake(Time settled_at) const {
  const Time rollout = path_.stages.next_wake();
  if (deployment_.rollout()) return rollout;
  const bool gathers = journal_.requests().any() && journal_.requests().gather_until() > settled_at;
  return gathers ? std::min(rollout, journal_.requests().gather_until()) : rollout;
}

void ReorganisationController::on_plan_made(PlanMade event, Time now, FrontendEffects& effects) {
  if (!journal_.requests().finish(event.number)) return;
  if (std::optional<schedule::Plan> plan = path_.decisions.decide(std::move(event), now, effects))
    path_.stages.begin(std::move(*plan), now, effects);
}

}  // namespace gpulet::serve
