// FrontendCore: when to ask for a plan, and what is told of the answer.
#include <algorithm>
#include <iterator>
#include <utility>

#include "gpulet/schedule/reconcile.h"
#include "gpulet/serve/frontend_core.h"
#include "serve/wording.h"

namespace gpulet::serve {
namespace {

constexpr std::size_t kMostReasons = 4;  // that are told of one plan

std::vector<std::string> models_of(const std::vector<schedule::Unserved>& unserved) {
  std::vector<std::string> names;
  for (const schedule::Unserved& one : unserved) names.push_back(one.model);
  return names;
}

// "no place for 39.8/s of a, 12.0/s of b and 7 more: <why the first has none>"
std::string told(const std::vector<schedule::Unserved>& unserved) {
  constexpr std::size_t kMostModels = 4;
  std::vector<std::string> models;
  for (const schedule::Unserved& one : unserved) {
    if (models.size() == kMostModels) break;
    models.push_back(per_second(one.rate) + " of " + one.model);
  }
  std::string text = "no place for " + joined(models, ", ");
  if (unserved.size() > kMostModels)
    text += " and " + std::to_string(unserved.size() - kMostModels) + " more";
  text += ": " + unserved.front().reason;
  return text + (unserved.size() > 1 ? " (" + unserved.front().model + ")" : "");
}

std::vector<bool> created_by(const schedule::Steps& steps, std::size_t gpulets) {
  std::vector<bool> created(gpulets, false);
  for (const std::size_t index : steps.create) created[index] = true;
  return created;
}

}  // namespace

void FrontendCore::want_plan(std::string why, std::string subject) {
  const auto known =
      std::find_if(plan_reasons_.begin(), plan_reasons_.end(), [&](const PlanReason& reason) {
        return reason.why == why || (!subject.empty() && reason.subject == subject);
      });
  if (known != plan_reasons_.end()) {
    known->why = std::move(why);
  } else if (plan_reasons_.size() < kMostReasons) {
    plan_reasons_.push_back({std::move(why), std::move(subject)});
  }
}

void FrontendCore::plan_if_wanted(Time now, FrontendEffects& effects) {
  if (!plan_wanted() || plan_pending_ || rollout_ || draining_ || has_more_to_do()) return;
  if (!stages_.empty() && !plan_urgent_) return;  // they end soon
  if (options_.keep_plan && epoch_.value > 0) return;
  if (now < gather_until_) return;
  const bool too_soon = now - last_plan_ < options_.least_between_plans;
  if (too_soon && !plan_urgent_) return;  // the next tick asks again
  MakePlan request;
  request.cluster = fleet_.cluster();
  std::erase_if(request.cluster.devices, [this](const schedule::Device& device) {
    return !profiles_->contains(device.type);
  });
  if (request.cluster.devices.empty()) {
    release_leaving(effects);
    return;
  }
  request.closed = closed_devices(request.cluster);
  uses_excluded_ = park_failed(request.closed.size() == request.cluster.devices.size());
  if (uses_excluded_) request.closed.clear();
  reasons_of_pending_ = std::exchange(plan_reasons_, {});
  plan_pending_ = true;
  plan_urgent_ = false;
  stages_.clear();
  last_plan_ = now;
  request.number = ++plan_number_;
  const std::vector<schedule::ModelDemand> demands = demands_.next(plan_.schedulable());
  demands_.planned(demands);
  std::copy_if(demands.begin(), demands.end(), std::back_inserter(request.demands),
               [this](const schedule::ModelDemand& demand) { return !withheld(demand.name); });
  for (schedule::ModelDemand& demand : request.demands) {
    demand.alone = quarantine_.suspects(demand.name);
    const auto known = versions_.named().find(demand.name);
    if (known != versions_.named().end())
      demand.queued = static_cast<double>(dispatcher_.queued(known->second.current.index));
  }
  request.kept = keep_on(request.closed, request.demands);
  if (!serving_.empty()) request.current = plan_;
  request.profiles = profiles_;
  request.interference = interference_;
  request.options.margin = options_.margin;
  request.options.headroom = options_.headroom;
  request.options.max_devices = options_.max_devices;
  request.scale = !options_.keep_plan;
  request.spill = options_.control.spill;
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
                                      return fleet_.takes_gpulets(planned.device);
                                    });
  if (!possible) {
    want_plan("devices went while the plan was made");
    return;
  }
  last_plan_refused_ = false;
  const schedule::Steps steps = schedule::reconcile(running_gpulets(), event.plan);
  // So may gpulets have that were to stay where no new ones are made.
  const bool allowed = std::all_of(
      steps.create.begin(), steps.create.end(),
      [&](std::size_t index) { return exclusions_.allows(event.plan.gpulets[index].device); });
  if (!allowed && !uses_excluded_) {
    want_plan("gpulets failed while the plan was made");
    plan_urgent_ = true;
    return;
  }
  if (!event.plan.schedulable()) ++reorganisation_counters_.unschedulable;
  if (epoch_.value > 0 && steps.empty() && event.plan == plan_) return;  // it stands as it is
  tell_decision(event.plan, steps, std::move(event.explanation), now, effects);
  stages_ = stages_to(std::move(event.plan), now, effects);
}

void FrontendCore::tell_decision(const schedule::Plan& plan, const schedule::Steps& steps,
                                 schedule::Explanation explanation, Time now,
                                 FrontendEffects& effects) {
  const std::uint32_t before = plan_.devices_used();
  const std::uint32_t after = plan.devices_used();
  std::vector<std::string> reasons;
  for (const PlanReason& reason : reasons_of_pending_) reasons.push_back(reason.why);
  std::string text =
      "plans " + counted(plan.gpulets.size(), "gpulet") + " on " + counted(after, "device");
  if (after > before) {
    text += ", " + std::to_string(after - before) + " more";
    reorganisation_counters_.devices_taken += after - before;
  } else if (after < before) {
    text += ", " + std::to_string(before - after) + " given back";
    reorganisation_counters_.devices_given_back += before - after;
  }
  if (steps.empty()) {
    text += ", the same with other rates: ";
  } else {
    text += " (" + std::to_string(steps.create.size()) + " new, " +
            std::to_string(steps.retire.size()) + " to go): ";
  }
  text += joined(reasons, "; ");
  record_.decide({plan_number_, now, text, plan, created_by(steps, plan.gpulets.size()),
                  steps.retire.size(), std::move(explanation)});
  note_of_plan(false, std::move(text), now, effects);
  if (models_of(plan.unserved) == models_of(plan_.unserved)) return;  // told before
  if (!plan.schedulable())
    note(true, told(plan.unserved), now, effects, StatusEvent::Kind::shortage);
  if (plan.schedulable()) note(false, "every rate has a place again", now, effects);
}

}  // namespace gpulet::serve
