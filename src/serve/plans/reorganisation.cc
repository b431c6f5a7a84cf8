#include "serve/plans/reorganisation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/schedule/mig.h"
#include "serve/adapt/trials.h"

namespace gpulet::serve {
namespace {

std::vector<std::string> models_of(const std::vector<schedule::Unserved>& unserved) {
  std::vector<std::string> names;
  for (const schedule::Unserved& one : unserved) names.push_back(one.model);
  return names;
}

// A backend that takes longer to end a gpulet does not end it.
constexpr Duration kInstancesEndWithin = std::chrono::seconds(30);

// "cannot place 39.8/s of a, 12.0/s of b and 7 more: <the reason of the first>"
std::string describe(const std::vector<schedule::Unserved>& unserved) {
  constexpr std::size_t kMostModels = 4;
  std::vector<std::string> models;
  for (const schedule::Unserved& one : unserved) {
    if (models.size() == kMostModels) break;
    models.push_back(fmt::format("{} of {}", per_second(one.rate), one.model));
  }
  std::string text = "cannot place " + joined(models);
  if (unserved.size() > kMostModels)
    text += fmt::format(" and {} more", unserved.size() - kMostModels);
  text += ": " + unserved.front().reason;
  return text + (unserved.size() > 1 ? " (" + unserved.front().model + ")" : "");
}

}  // namespace

// ---- when to plan

void ReorganisationController::tick(Time now) {
  if (auto deviation = core_.demands.above_plan())
    core_.plan_requests.add(std::move(deviation->why), std::move(deviation->model));
  const bool schedulable = core_.deployment.plan().schedulable();
  const bool period_over = now >= period_end_;
  const bool has_room = roomy();
  if (period_over || !has_room) {
    if (auto deviation = core_.demands.below_plan(has_room))
      core_.plan_requests.add(std::move(deviation->why), std::move(deviation->model));
  }
  if (!period_over) return;
  period_end_ = now + options_.period;
  if (!schedulable) core_.plan_requests.add("not every rate is served");
  if (trials_wait(core_.models, now)) core_.plan_requests.add("new models wait for room");
  if (last_plan_refused_) core_.plan_requests.add("the last plan was refused");
}

bool ReorganisationController::roomy() const {
  const schedule::Plan& plan = core_.deployment.plan();
  if (!plan.schedulable()) return false;
  const bool cpus = std::any_of(plan.gpulets.begin(), plan.gpulets.end(), [this](const auto& one) {
    const DeviceOffer* const offer = core_.backends.offer_of(one.device);
    return one.service == schedule::Service::rounds && offer != nullptr &&
           schedule::is_cpu(offer->device);
  });
  return !cpus || schedule::without_cpus(core_.backends.cluster()).devices.empty();
}

void ReorganisationController::plan_if_requested(Time now, FrontendEffects& effects) {
  if (!core_.plan_requests.any() || core_.plan_requests.pending() || core_.deployment.rollout())
    return;
  if (!core_.deployment.stages().empty() && !core_.plan_requests.urgent()) return;  // they end soon
  if (options_.keep_plan && core_.deployment.epoch().value > 0) return;
  if (now < core_.plan_requests.gather_until()) return;
  const bool too_soon = now - last_plan_ < options_.least_between_plans;
  if (too_soon && !core_.plan_requests.urgent()) return;  // the next tick tries again
  core_.estimates.refresh();
  schedule::Cluster cluster = core_.backends.cluster();
  std::erase_if(cluster.devices, [this](const schedule::Device& device) {
    return !core_.profiles.profiles->contains(device.type);
  });
  if (cluster.devices.empty()) return release_draining(effects);
  last_plan_ = now;
  effects.emplace_back(make_request(std::move(cluster), now));
}

MakePlan ReorganisationController::make_request(schedule::Cluster cluster, Time now) {
  MakePlan effect;
  planning::PlanRequest& request = effect.request;
  request.cluster = std::move(cluster);
  for (const schedule::Device& device : request.cluster.devices) {
    if (!core_.exclusions.allows(device.key)) request.closed.insert(device.key);
  }
  uses_excluded_ =
      core_.failures.park_failed(request.closed.size() == request.cluster.devices.size());
  if (uses_excluded_) request.closed.clear();
  core_.deployment.stages().clear();
  effect.number = core_.plan_requests.begin();
  const std::vector<schedule::ModelDemand> demands = core_.demands.next(roomy());
  core_.demands.planned(demands);
  std::copy_if(
      demands.begin(), demands.end(), std::back_inserter(request.demands),
      [this](const schedule::ModelDemand& demand) { return !core_.models.withheld(demand.name); });
  for (schedule::ModelDemand& demand : request.demands) {
    demand.alone = core_.models.quarantine().suspects(demand.name);
    if (const NamedModel* const known = core_.models.find(demand.name))
      demand.queued = static_cast<double>(core_.dispatcher.queued(known->current.index));
    if (const auto* const reported = core_.reported.find(demand.name))
      demand.queued += static_cast<double>(reported->queued_anywhere());
  }
  std::set<std::string> only_hung;
  for (const schedule::ModelDemand& demand : request.demands) {
    if (demand.alone && core_.models.quarantine().may_share(demand.name))
      only_hung.insert(demand.name);
  }
  effect.may_share = core_.feedback.adjust(request.demands);
  effect.may_share.merge(only_hung);
  plan_probes(effect);
  choose_trials(core_.models, core_.backends, now, effect);
  request.not_on = core_.failures.not_on(request.cluster);
  request.corrections = core_.feedback.planned();
  request.slow_devices = core_.feedback.planned_slow_devices();
  request.kept = keep_on(request.closed, request.demands);
  if (!core_.deployment.serving().empty()) request.current = core_.deployment.plan();
  request.profiles = core_.profiles.profiles;
  request.interference = core_.profiles.interference;
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

// One gpulet of its own shows what the batches of a model take; a plan with that follows. Until
// then, neither its placeholders nor its rate say what it needs.
void ReorganisationController::plan_probes(MakePlan& effect) const {
  for (schedule::ModelDemand& demand : effect.request.demands) {
    if (!core_.estimates.unprobed(demand.name)) continue;
    demand.rate = std::min(demand.rate, options_.demands.least_rate);
    demand.alone = true;
    effect.may_share.insert(demand.name);
  }
}

std::vector<schedule::PlannedGpulet> ReorganisationController::keep_on(
    const std::set<schedule::DeviceKey>& closed,
    const std::vector<schedule::ModelDemand>& demands) {
  kept_.clear();
  std::vector<schedule::PlannedGpulet> kept;
  for (const auto& [id, planned] : core_.deployment.serving()) {
    const GpuletRecord* const gpulet = core_.backends.find(id);
    if (!closed.contains(planned.device) || gpulet == nullptr || gpulet->retiring) continue;
    schedule::PlannedGpulet part = planned;
    std::erase_if(part.assignments, [&](const schedule::Assignment& one) {
      const auto demand = std::find_if(demands.begin(), demands.end(), [&one](const auto& wanted) {
        return wanted.name == one.model && wanted.slo_ms == one.slo_ms &&
               wanted.max_batch >= one.batch;
      });
      if (demand == demands.end()) return true;
      const std::string& version = core_.models.find(one.model)->wanted().id;
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

std::vector<schedule::RunningGpulet> ReorganisationController::running_gpulets() const {
  std::vector<schedule::RunningGpulet> running = core_.backends.running();
  const auto wanted = [this](const schedule::RunningModel& loaded) {
    const NamedModel* const known = core_.models.find(loaded.name);
    return known != nullptr && known->wanted().id == loaded.version &&
           !core_.demands.asleep(known->demand);
  };
  for (schedule::RunningGpulet& gpulet : running) {
    if (kept_.contains(gpulet.id)) continue;
    if (std::all_of(gpulet.models.begin(), gpulet.models.end(), wanted)) continue;
    for (schedule::RunningModel& loaded : gpulet.models) loaded.max_batch = 0;
  }
  return running;
}

void ReorganisationController::release_draining(FrontendEffects& effects) {
  for (const auto& [id, gpulet] : core_.backends.gpulets()) {
    if (core_.backends.backends().at(gpulet.backend).leaving) core_.deployment.retire(id, effects);
  }
}

// ---- decisions

void ReorganisationController::on_plan_made(PlanMade event, Time now, FrontendEffects& effects) {
  if (!core_.plan_requests.finish(event.number)) return;
  if (!event.result.faults.empty()) {
    last_plan_refused_ = true;
    core_.log.note(true,
                   fmt::format("the plan of policy {} was refused by the checker: {}",
                               event.result.plan.policy, event.result.faults.front()),
                   now, effects);
    return;
  }
  // Devices may have been lost while the plan was made.
  const bool possible =
      std::all_of(event.result.plan.gpulets.begin(), event.result.plan.gpulets.end(),
                  [this](const schedule::PlannedGpulet& planned) {
                    return core_.backends.takes_gpulets(planned.device);
                  });
  if (!possible) {
    core_.plan_requests.add("devices were lost while the plan was made");
    return;
  }
  last_plan_refused_ = false;
  put_off_trials(core_.models, event.no_room, now);
  const schedule::Steps steps = schedule::reconcile(running_gpulets(), event.result.plan);
  if (const std::set<std::string> in_place = trials_in_place(event.result.plan, steps);
      !in_place.empty()) {
    put_off_trials(core_.models, in_place, now + options_.backoff);
    core_.plan_requests.add_urgent(
        "no device has room for " +
        joined(std::vector<std::string>(in_place.begin(), in_place.end())) + " beside what serves");
    return;
  }
  // Gpulets that were to stay on excluded devices may have failed meanwhile.
  const bool allowed =
      std::all_of(steps.create.begin(), steps.create.end(), [&](std::size_t index) {
        return core_.exclusions.allows(event.result.plan.gpulets[index].device);
      });
  if (!allowed && !uses_excluded_) {
    core_.plan_requests.add_urgent("gpulets failed while the plan was made");
    return;
  }
  if (!event.result.plan.schedulable()) core_.history.count_unschedulable();
  if (in_force(event.result.plan, steps)) return;
  add_outage_notes(event.result.plan, steps, now, effects);
  report_decision(event.result.plan, steps, std::move(event.result.explanation), now, effects);
  core_.deployment.stages() = stages_to(std::move(event.result.plan), now, effects);
}

bool ReorganisationController::in_force(const schedule::Plan& plan,
                                        const schedule::Steps& steps) const {
  const Deployment& deployment = core_.deployment;
  if (deployment.epoch().value == 0 || !steps.empty() || plan != deployment.plan()) return false;
  return std::all_of(steps.keep.begin(), steps.keep.end(), [&](const auto& keep) {
    if (deployment.missing().contains(keep.running)) return true;  // it joins later
    const auto part = deployment.serving().find(keep.running);
    return part != deployment.serving().end() && part->second == plan.gpulets[keep.planned];
  });
}

void ReorganisationController::add_outage_notes(schedule::Plan& plan, const schedule::Steps& steps,
                                                Time now, FrontendEffects& effects) {
  for (const PlannedOutage& outage : core_.rollouts.outages_of(plan, steps)) {
    std::string text = fmt::format(
        "device {} cannot hold old and new gpulets: {}, with {}, {} replaced in place and {} for "
        "{}",
        device_name(outage.device), counted(outage.dark.size(), "gpulet"), joined(outage.models),
        outage.dark.size() == 1 ? "is" : "are",
        outage.dark.size() == 1 ? "does not serve" : "do not serve",
        outage.expected ? fmt::format("about {:.1f} s", to_seconds(*outage.expected))
                        : "an unknown time, as long as the new one loads");
    core_.log.note(false, text, now, effects);
    plan.notes.push_back(std::move(text));
  }
}

void ReorganisationController::report_decision(const schedule::Plan& plan,
                                               const schedule::Steps& steps,
                                               schedule::Explanation explanation, Time now,
                                               FrontendEffects& effects) {
  const std::uint32_t before = core_.deployment.plan().devices_used();
  const std::uint32_t after = plan.devices_used();
  std::string text = fmt::format("new plan: {} on {}", counted(plan.gpulets.size(), "gpulet"),
                                 counted(after, "device"));
  if (after > before) text += fmt::format(" ({} more)", after - before);
  if (after < before) text += fmt::format(" ({} fewer)", before - after);
  text += steps.empty() ? "; same gpulets, new rates: "
                        : fmt::format("; {} to start, {} to stop: ", steps.create.size(),
                                      steps.retire.size());
  text += core_.plan_requests.reasons_of_last();
  std::vector<bool> created(plan.gpulets.size());
  for (const std::size_t index : steps.create) created[index] = true;
  core_.history.decide({core_.plan_requests.number(), now, text, plan, std::move(created),
                        steps.retire.size(), std::move(explanation)},
                       before);
  core_.log.note_plan(*core_.history.decision(), std::move(text), now, effects);
  if (models_of(plan.unserved) == models_of(core_.deployment.plan().unserved))
    return;  // reported before
  if (plan.schedulable()) {
    core_.log.note(false, "every rate is served again", now, effects);
  } else {
    core_.log.note(true, describe(plan.unserved), now, effects, StatusEvent::Kind::shortage);
  }
}

// ---- stages

std::deque<schedule::Plan> ReorganisationController::stages_to(schedule::Plan plan, Time now,
                                                               FrontendEffects& effects) {
  schedule::Plan serving;
  for (const auto& [id, planned] : core_.deployment.serving()) serving.gpulets.push_back(planned);
  auto staged = schedule::stage_plan(serving, plan, core_.backends.cluster());
  if (!staged.ok()) {
    core_.log.note(true, "the plan cannot come into force in stages: " + staged.status().message(),
                   now, effects);
    return {std::move(plan)};
  }
  std::vector<schedule::Plan>& plans = staged.value().plans;
  if (plans.size() > 1) {
    core_.log.note(false, fmt::format("the plan comes into force in {} stages", plans.size()), now,
                   effects);
  }
  return {std::make_move_iterator(plans.begin()), std::make_move_iterator(plans.end())};
}

void ReorganisationController::advance(Time now, FrontendEffects& effects) {
  if (!core_.deployment.rollout()) start_next_stage(now, effects);
  core_.rollouts.advance(now, effects);
}

void ReorganisationController::start_next_stage(Time now, FrontendEffects& effects) {
  std::deque<schedule::Plan>& stages = core_.deployment.stages();
  if (stages.empty()) return;
  schedule::Steps steps = schedule::reconcile(running_gpulets(), stages.front());
  if (waits_for_instances(stages.front(), steps)) {
    if (!waits_since_) waits_since_ = now;
    if (now - *waits_since_ < kInstancesEndWithin) return;
    // The device of a gpulet that does not end is excluded (FailureHandler), so plan without it.
    waits_since_.reset();
    stages.clear();
    core_.plan_requests.add_urgent("gpulets did not leave their MIG instances in time");
    return;
  }
  waits_since_.reset();
  schedule::Plan next = std::move(stages.front());
  stages.pop_front();
  core_.rollouts.begin(std::move(next), std::move(steps), now, effects);
}

bool ReorganisationController::waits_for_instances(const schedule::Plan& plan,
                                                   const schedule::Steps& steps) const {
  return std::any_of(steps.create.begin(), steps.create.end(), [&](std::size_t index) {
    const schedule::PlannedGpulet& planned = plan.gpulets[index];
    const DeviceOffer* const offer = core_.backends.offer_of(planned.device);
    if (!planned.instance || offer == nullptr || !offer->device.mig) return false;
    return std::any_of(
        core_.backends.gpulets().begin(), core_.backends.gpulets().end(), [&](const auto& entry) {
          const GpuletRecord& there = entry.second;
          return there.retiring && there.instance && there.device == planned.device &&
                 (there.instance == planned.instance ||
                  !offer->device.mig->compatible(*there.instance, *planned.instance));
        });
  });
}

std::set<std::string> ReorganisationController::trials_in_place(
    const schedule::Plan& plan, const schedule::Steps& steps) const {
  const std::vector<schedule::RunningGpulet> running = core_.backends.running();
  const std::set<schedule::DeviceKey> in_place = schedule::devices_without_rollout_capacity(
      running, plan, steps, core_.backends.cluster(), *core_.profiles.profiles);
  std::set<schedule::DeviceKey> serving;  // where gpulets would end that serve
  for (const auto& [id, planned] : core_.deployment.serving()) {
    const bool stays = std::any_of(steps.keep.begin(), steps.keep.end(),
                                   [id = id](const auto& one) { return one.running == id; });
    const bool needed =
        std::any_of(planned.assignments.begin(), planned.assignments.end(),
                    [this](const auto& one) { return core_.models.has_ready_slot(one.model); });
    if (!stays && needed) serving.insert(planned.device);
  }
  std::set<std::string> models;
  for (const std::size_t index : steps.create) {
    const schedule::PlannedGpulet& planned = plan.gpulets[index];
    if (!in_place.contains(planned.device) || !serving.contains(planned.device)) continue;
    for (const schedule::Assignment& one : planned.assignments) {
      const NamedModel* const known = core_.models.find(one.model);
      if (known != nullptr && !known->wanted().proven) models.insert(one.model);
    }
  }
  return models;
}

Time ReorganisationController::next_wake(Time settled_at) const {
  const Time rollout = core_.rollouts.next_wake();
  if (core_.deployment.rollout()) return rollout;
  const bool gathers = core_.plan_requests.any() && core_.plan_requests.gather_until() > settled_at;
  return gathers ? std::min(rollout, core_.plan_requests.gather_until()) : rollout;
}

}  // namespace gpulet::serve
