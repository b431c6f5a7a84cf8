#include "serve/plans/demands_to_plan.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace gpulet::serve {

void DemandsToPlan::add_to(MakePlan& effect, bool roomy) {
  planning::PlanRequest& request = effect.request;
  const std::vector<schedule::ModelDemand> demands = demands_.next(roomy);
  demands_.planned(demands);
  std::copy_if(demands.begin(), demands.end(), std::back_inserter(request.demands),
               [this](const schedule::ModelDemand& demand) {
                 return !models_.setbacks().withheld(demand.name);
               });
  for (schedule::ModelDemand& demand : request.demands) {
    demand.alone = models_.setbacks().quarantine().suspects(demand.name);
    demand.queued = loads_.queued(demand.name, models_.find(demand.name));
  }
  std::set<std::string> only_hung;
  for (const schedule::ModelDemand& demand : request.demands) {
    if (demand.alone && models_.setbacks().quarantine().may_share(demand.name))
      only_hung.insert(demand.name);
  }
  effect.may_share = feedback_.adjust(request.demands);
  effect.may_share.merge(only_hung);
  plan_probes(effect);
}

// One gpulet of its own shows what the batches of a model take; a plan with that follows. Until
// then, neither its placeholders nor its rate say what it needs.
void DemandsToPlan::plan_probes(MakePlan& effect) const {
  for (schedule::ModelDemand& demand : effect.request.demands) {
    if (!estimates_.unprobed(demand.name)) continue;
    demand.rate = std::min(demand.rate, options_.demands.least_rate);
    demand.alone = true;
    effect.may_share.insert(demand.name);
  }
}

}  // namespace gpulet::serve
