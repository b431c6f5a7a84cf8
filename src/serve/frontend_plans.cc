// FrontendCore: when to ask for a plan, and a plan's way into force.
#include <algorithm>
#include <iterator>
#include <utility>

#include "gpulet/serve/frontend_core.h"

namespace gpulet::serve {
namespace {

constexpr std::size_t kMostReasons = 4;  // that are told of one plan

}  // namespace

void FrontendCore::want_plan(std::string why) {
  if (plan_reasons_.size() >= kMostReasons) return;
  if (std::find(plan_reasons_.begin(), plan_reasons_.end(), why) != plan_reasons_.end()) return;
  plan_reasons_.push_back(std::move(why));
}

void FrontendCore::plan_if_wanted(Time now, FrontendEffects& effects) {
  if (!plan_wanted() || plan_pending_ || rollout_ || draining_) return;
  if (options_.keep_plan && epoch_.value > 0) return;
  if (now < gather_until_) return;
  if (now - last_plan_ < options_.least_between_plans) return;  // the next tick asks again
  MakePlan request;
  request.cluster = fleet_.cluster();
  std::erase_if(request.cluster.devices, [this](const schedule::Device& device) {
    return !profiles_->contains(device.type);
  });
  if (request.cluster.devices.empty()) return;
  reasons_of_pending_ = std::exchange(plan_reasons_, {});
  plan_pending_ = true;
  last_plan_ = now;
  request.number = ++plan_number_;
  const std::vector<schedule::ModelDemand> demands = demands_.next(plan_.schedulable());
  demands_.planned(demands);
  std::copy_if(
      demands.begin(), demands.end(), std::back_inserter(request.demands),
      [this](const schedule::ModelDemand& demand) { return !held_back_.contains(demand.name); });
  if (!serving_.empty()) request.current = plan_;
  request.options.margin = options_.margin;
  request.options.headroom = options_.headroom;
  request.options.max_devices = options_.max_devices;
  effects.emplace_back(std::move(request));
}

void FrontendCore::on_event(PlanMade event, Time now, FrontendEffects& effects) {
  if (!plan_pending_ || event.number != plan_number_) return;
  plan_pending_ = false;
  if (!event.faults.empty()) {
    last_plan_refused_ = true;
    note(true,
         "the plan of policy " + event.plan.policy +
             " was refused by the checker: " + event.faults.front(),
         now, effects);
    return;
  }
  // Devices may have gone while the plan was made.
  const bool possible = std::all_of(event.plan.gpulets.begin(), event.plan.gpulets.end(),
                                    [this](const schedule::PlannedGpulet& planned) {
                                      return fleet_.backend_of(planned.device).has_value();
                                    });
  if (!possible) {
    want_plan("devices went while the plan was made");
    return;
  }
  last_plan_refused_ = false;
  gpulets_changed_ = true;
  schedule::Steps steps = schedule::reconcile(fleet_.running(), event.plan);
  rollout_.emplace(
      std::move(event.plan), std::move(steps), [this] { return GpuletId{next_gpulet_++}; },
      now + options_.preparing_timeout);
  for (const auto& [id, part] : rollout_->parts()) {
    const bool waits = !rollout_->is_new(id) && fleet_.find(id)->state == GpuletState::preparing;
    if (waits) rollout_->await(id);
  }
  for (const GpuletId id : rollout_->created()) {
    const schedule::PlannedGpulet& planned = rollout_->plan().gpulets[rollout_->parts().at(id)];
    CreateGpulet create{id, planned.device.device, planned.size, {}};
    std::vector<schedule::LoadedModel> loaded;
    for (const schedule::Assignment& assignment : planned.assignments) {
      const ServedModel& model = dispatcher_.models()[model_index_.at(assignment.model)];
      // Prepared for somewhat larger batches than planned: the next plan may keep it then.
      std::uint32_t max_batch = 1;
      while (max_batch < assignment.batch) max_batch *= 2;
      max_batch = std::max(assignment.batch, std::min(max_batch, model.max_batch));
      create.models.push_back({model.name, model.sha256, model.inputs, model.outputs, max_batch});
      loaded.push_back({model.name, max_batch});
    }
    std::sort(loaded.begin(), loaded.end());
    fleet_.created(id, planned.device, planned.size, std::move(loaded));
    effects.emplace_back(TellBackend{*fleet_.backend_of(planned.device), std::move(create)});
  }
  for (const schedule::Unserved& unserved : rollout_->plan().unserved) {
    note(true, "no place for " + unserved.model + ": " + unserved.reason, now, effects);
  }
}

void FrontendCore::advance_rollout(Time now, FrontendEffects& effects) {
  if (!rollout_) return;
  if (rollout_->complete(now)) {
    activate(now, effects);
    return;
  }
  if (!std::exchange(gpulets_changed_, false)) return;
  // A model that nobody serves now need not wait for the others' gpulets.
  bool joined = false;
  for (const auto& [id, part] : rollout_->parts()) {
    if (rollout_->awaits(id) || serving_.contains(id)) continue;
    const schedule::PlannedGpulet& planned = rollout_->plan().gpulets[part];
    const bool needed = std::any_of(
        planned.assignments.begin(), planned.assignments.end(), [this](const auto& one) {
          return !dispatcher_.has_ready_lane(model_index_.at(one.model));
        });
    if (!needed) continue;
    serving_[id] = planned;
    joined = true;
  }
  if (joined) put_routes_in_force(now);
}

void FrontendCore::activate(Time now, FrontendEffects& effects) {
  for (const GpuletId id : rollout_->give_up_awaited()) {
    note(true, "a gpulet was not ready in time and is given up", now, effects);
    if (const FleetGpulet* gpulet = fleet_.find(id)) {
      effects.emplace_back(TellBackend{gpulet->backend, RetireGpulet{id}});
      fleet_.retiring(id);
    }
    want_plan("a gpulet was not ready in time");
  }
  serving_.clear();
  for (const auto& [id, part] : rollout_->parts()) serving_[id] = rollout_->plan().gpulets[part];
  plan_ = rollout_->plan();
  ++epoch_.value;
  put_routes_in_force(now);
  for (const GpuletId id : rollout_->retire()) {
    const FleetGpulet* gpulet = fleet_.find(id);
    if (gpulet == nullptr) continue;
    effects.emplace_back(TellBackend{gpulet->backend, RetireGpulet{id}});
    fleet_.retiring(id);
  }
  note(false,
       "epoch " + std::to_string(epoch_.value) + " serves: " + std::to_string(serving_.size()) +
           " gpulets on " + std::to_string(plan_.devices_used()) + " devices",
       now, effects);
  rollout_.reset();
}

Route FrontendCore::route_of(GpuletId id, const schedule::PlannedGpulet& planned) const {
  Route route{id, fleet_.find(id)->backend, from_ms(planned.duty_cycle_ms), {}};
  const profile::Profile& measured = profiles_->at(fleet_.offer_of(planned.device)->device.type);
  for (const schedule::Assignment& assignment : planned.assignments) {
    LaneSpec lane{model_index_.at(assignment.model), {}};
    const profile::LatencyTable& table = measured.find(assignment.model)->latency;
    for (std::uint32_t count = 1; count <= assignment.batch; ++count) {
      // A planned batch has an answer in the table, and so has every smaller one.
      const double alone_ms = table.latency_ms(count, planned.size).value();
      lane.execution.push_back(from_ms(alone_ms * assignment.slowdown * options_.margin));
    }
    route.lanes.push_back(std::move(lane));
  }
  return route;
}

void FrontendCore::put_routes_in_force(Time now) {
  std::vector<Route> routes;
  for (const auto& [id, planned] : serving_) routes.push_back(route_of(id, planned));
  dispatcher_.set_routes(routes, now);
  for (const auto& [id, planned] : serving_) {
    dispatcher_.set_ready(id, fleet_.find(id)->state == GpuletState::ready, now);
  }
}

}  // namespace gpulet::serve
