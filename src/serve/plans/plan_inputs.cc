#include "serve/plans/plan_inputs.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "serve/adapt/trials.h"

namespace gpulet::serve {

schedule::Cluster PlanInputs::cluster() {
  demands_.refresh_estimates();
  schedule::Cluster cluster = fleet_.backends().cluster();
  std::erase_if(cluster.devices, [this](const schedule::Device& device) {
    return fleet_.profile_of(device.type) == nullptr;
  });
  return cluster;
}

MakePlan PlanInputs::request(schedule::Cluster cluster, std::uint64_t number, bool roomy,
                             Time now) {
  MakePlan effect;
  planning::PlanRequest& request = effect.request;
  request.cluster = std::move(cluster);
  for (const schedule::Device& device : request.cluster.devices) {
    if (!failures_.allows(device.key)) request.closed.insert(device.key);
  }
  uses_excluded_ = failures_.park_failed(request.closed.size() == request.cluster.devices.size());
  if (uses_excluded_) request.closed.clear();
  effect.number = number;
  demands_.add_to(effect, roomy);
  choose_trials(models_, fleet_.backends(), now, effect);
  request.not_on = failures_.not_on(request.cluster);
  request.corrections = feedback_.planned();
  request.slow_devices = feedback_.planned_slow_devices();
  request.kept = keep_on(request.closed, request.demands);
  if (!deployment_.in_force().serving().empty()) request.current = deployment_.in_force().plan();
  request.profiles = fleet_.in_force().profiles;
  request.interference = fleet_.in_force().interference;
  request.options.margin = options_.margin;
  request.options.headroom = options_.headroom;
  request.options.budget_ms = options_.plan_budget_ms;
  request.options.max_devices = options_.max_devices;
  request.options.use_spare = options_.use_spare;
  request.options.verify = options_.verify;
  request.growth = options_.keep_plan ? 0 : options_.demands.growth;
  request.scale = !options_.keep_plan;
  request.spill = options_.control.spill;
  return effect;
}

std::vector<schedule::PlannedGpulet> PlanInputs::keep_on(
    const std::set<schedule::DeviceKey>& closed,
    const std::vector<schedule::ModelDemand>& demands) {
  kept_.clear();
  std::vector<schedule::PlannedGpulet> kept;
  for (const auto& [id, planned] : deployment_.in_force().serving()) {
    const GpuletRecord* const gpulet = fleet_.backends().find(id);
    if (!closed.contains(planned.device) || gpulet == nullptr || gpulet->retiring) continue;
    schedule::PlannedGpulet part = planned;
    std::erase_if(part.assignments, [&](const schedule::Assignment& one) {
      const auto demand = std::find_if(demands.begin(), demands.end(), [&one](const auto& wanted) {
        return wanted.name == one.model && wanted.slo_ms == one.slo_ms &&
               wanted.max_batch >= one.batch;
      });
      if (demand == demands.end()) return true;
      const std::string& version = models_.find(one.model)->wanted().id;
      return std::none_of(gpulet->models.begin(), gpulet->models.end(),
                          [&](const schedule::RunningModel& loaded) {
                            return loaded.name == one.model && loaded.version == version;
                          });
    });
    if (part.assignments.empty()) continue;
    kept_.insert(id);
    kept.push_back(std::move(part));
  }
  return kept;
}

std::vector<schedule::RunningGpulet> PlanInputs::running_gpulets() const {
  std::vector<schedule::RunningGpulet> running = fleet_.backends().running();
  const auto wanted = [this](const schedule::RunningModel& loaded) {
    const NamedModel* const known = models_.find(loaded.name);
    return known != nullptr && known->wanted().id == loaded.version && !models_.asleep(*known);
  };
  for (schedule::RunningGpulet& gpulet : running) {
    if (kept_.contains(gpulet.id)) continue;
    if (std::all_of(gpulet.models.begin(), gpulet.models.end(), wanted)) continue;
    for (schedule::RunningModel& loaded : gpulet.models) loaded.max_batch = 0;
  }
  return running;
}

bool PlanInputs::devices_remain(const schedule::Plan& plan) const {
  return std::all_of(plan.gpulets.begin(), plan.gpulets.end(),
                     [this](const schedule::PlannedGpulet& planned) {
                       return fleet_.backends().takes_gpulets(planned.device);
                     });
}

bool PlanInputs::may_create(const schedule::Plan& plan, const schedule::Steps& steps) const {
  return uses_excluded_ ||
         std::all_of(steps.create.begin(), steps.create.end(), [&](std::size_t index) {
           return failures_.allows(plan.gpulets[index].device);
         });
}

}  // namespace gpulet::serve
