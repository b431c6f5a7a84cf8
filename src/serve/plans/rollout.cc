#include "serve/plans/rollout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "gpulet/schedule/reconcile.h"
#include "serve/adapt/estimates.h"

namespace gpulet::serve {
namespace {

constexpr std::size_t kModelsCreatedAtOnce = 512;  // of the gpulets that are created in one turn

// The size whose latency a gpulet of that size has.
Share measured_size(Share size, schedule::Service service) {
  return service == schedule::Service::controlled ? kWholeDevice : size;
}

// The batches of the model, with and without spare share.
std::set<std::uint32_t> planned_batches(const schedule::PlannedGpulet& planned,
                                        const schedule::Assignment& assignment) {
  std::set<std::uint32_t> batches{assignment.batch};
  if (planned.policy_choice) {
    for (const schedule::Assignment& one : planned.policy_choice->assignments) {
      if (one.model == assignment.model) batches.insert(one.batch);
    }
  }
  batches.erase(0);
  return batches;
}

PlanPart part_for(const schedule::PlannedGpulet& planned) {
  return {planned.duty_cycle_ms, planned.assignments, planned.service, planned.policy_choice};
}

}  // namespace

// ---- new gpulets

void RolloutController::begin(schedule::Plan plan, schedule::Steps steps, Time now,
                              FrontendEffects& effects) {
  core_.deployment.set_gpulets_changed();
  next_mixture_ = now;
  std::vector<schedule::RunningGpulet> running;
  for (const auto& [id, gpulet] : core_.backends.gpulets())
    running.push_back(as_running(id, gpulet));
  const std::set<schedule::DeviceKey> in_place = schedule::devices_without_rollout_capacity(
      running, plan, steps, core_.backends.cluster(), *core_.profiles.profiles);
  std::vector<PlannedOutage> outages = outages_of(plan, steps);
  Rollout& rollout = core_.deployment.rollout().emplace(
      std::move(plan), std::move(steps), in_place, [this] { return core_.deployment.new_gpulet(); },
      now, options_.rollout_patience);
  std::map<std::size_t, GpuletId> id_of;
  for (const auto& [id, part] : rollout.parts()) id_of[part] = id;
  for (PlannedOutage& outage : outages) outage.until = id_of.at(outage.until.value);
  core_.deployment.set_outages(std::move(outages));
  core_.deployment.set_least_rates(
      schedule::least_rates(core_.deployment.serving(), core_.deployment.wanted()));
  for (const auto& [id, part] : rollout.parts()) {
    const GpuletRecord* const kept = core_.backends.find(id);
    if (kept == nullptr || rollout.is_new(id) || kept->state != GpuletState::preparing) continue;
    if (now - kept->since < options_.rollout_patience) {
      rollout.await(id);
    } else {
      rollout.expect_late(id);
    }
  }
  const Time until = now + core_.deployment.patience(options_.rollout_patience);
  for (const auto& [id, part] : rollout.parts()) {
    if (rollout.awaits(id) && proven(rollout.part_of(id))) rollout.wait_longer(id, until);
  }
  // What serves nothing, and will not, only occupies memory.
  for (const GpuletId id : rollout.retire()) {
    if (!core_.deployment.serving().contains(id)) core_.deployment.retire(id, effects);
  }
  create_gpulets(now, effects);
}

// Some process has loaded and run each of its models before.
bool RolloutController::proven(const schedule::PlannedGpulet& planned) const {
  return std::all_of(planned.assignments.begin(), planned.assignments.end(),
                     [this](const auto& one) {
                       const NamedModel* const known = core_.models.find(one.model);
                       return known != nullptr && known->wanted().proven;
                     });
}

void RolloutController::create_gpulets(Time now, FrontendEffects& effects) {
  Rollout& rollout = *core_.deployment.rollout();
  std::size_t models = 0;
  while (models < kModelsCreatedAtOnce && rollout.has_to_create()) {
    const GpuletId id = rollout.take_to_create();
    models += rollout.part_of(id).assignments.size();
    create_gpulet(id, now, effects);
  }
}

void RolloutController::create_gpulet(GpuletId id, Time now, FrontendEffects& effects) {
  Rollout& rollout = *core_.deployment.rollout();
  const schedule::PlannedGpulet planned = rollout.part_of(id);
  const std::optional<BackendId> backend = core_.backends.backend_of(planned.device);
  CreateGpulet create{id, planned.device.device, planned.size, {}, part_for(planned)};
  std::vector<schedule::RunningModel> loaded;
  for (const schedule::Assignment& assignment : planned.assignments) {
    NamedModel* const known = core_.models.find(assignment.model);
    if (known == nullptr) continue;
    ModelVersion& version = known->wanted();
    if (!version.proven && !version.tried_since) version.tried_since = now;
    const ServedModel& model = core_.dispatcher.models()[version.index];
    // Prepared for somewhat larger batches than planned, so that the next plan may keep it.
    std::set<std::uint32_t> batches = planned_batches(planned, assignment);
    const std::uint32_t planned_batch = batches.empty() ? 0 : *batches.rbegin();
    const std::uint32_t probe = batch_to_probe(planned.device, assignment.model, model.max_batch);
    if (probe > 1) batches.insert({1, probe});
    std::uint32_t max_batch = 1;
    while (max_batch < planned_batch) max_batch *= 2;
    max_batch = std::max({planned_batch, std::min(max_batch, model.max_batch), probe});
    create.models.push_back({model.name, model.sha256, model.inputs, model.outputs, max_batch,
                             model.numerics, std::vector(batches.begin(), batches.end())});
    loaded.push_back({model.name, max_batch, version.id});
  }
  // The node or all of the models were removed since the plan was made.
  if (!backend || create.models.empty()) {
    rollout.lost(id);
    core_.plan_requests.add("nodes or models were removed while a plan came into force");
    return;
  }
  std::sort(loaded.begin(), loaded.end());
  create.memory_mb = memory_needed_mb(planned);
  create.instance = planned.instance;
  create.term = core_.backends.term_for(*backend);
  core_.backends.add_gpulet(create, planned.device, std::move(loaded), now);
  effects.emplace_back(SendToBackend{*backend, std::move(create)});
}

// The largest batch that the gpulet is probed with, if nothing is known of the model's latency.
std::uint32_t RolloutController::batch_to_probe(const schedule::DeviceKey& device,
                                                const std::string& model,
                                                std::uint32_t max_batch) const {
  const DeviceOffer* const offer = core_.backends.offer_of(device);
  const profile::ModelProfile* const known = core_.profiles.find(offer, model);
  if (known == nullptr || !known->estimate || known->estimate->probes > 0) return 1;
  return std::min(max_batch, largest_first_probe(offer->device));
}

double RolloutController::memory_needed_mb(const schedule::PlannedGpulet& planned) const {
  double sum_mb = 0;
  for (const schedule::Assignment& assignment : planned.assignments) {
    const auto* const measured =
        core_.profiles.find(core_.backends.offer_of(planned.device), assignment.model);
    if (measured == nullptr || !measured->memory_mb) return 0;
    sum_mb += *measured->memory_mb;
  }
  return sum_mb;
}

// ---- progress

void RolloutController::advance(Time now, FrontendEffects& effects) {
  std::optional<Rollout>& rollout = core_.deployment.rollout();
  if (rollout && rollout->has_to_create()) return create_gpulets(now, effects);
  mix_if_due(now, effects);
  if (!rollout) return;
  replace_in_place(now, effects);
  if (rollout->complete(now)) end_rollout(now, effects);
}

Time RolloutController::next_wake() const {
  const std::optional<Rollout>& rollout = core_.deployment.rollout();
  const Time mixture = core_.deployment.gpulets_changed() ? next_mixture_ : kNever;
  return rollout ? std::min(mixture, rollout->deadline()) : mixture;
}

void RolloutController::mix_if_due(Time now, FrontendEffects& effects) {
  if (now < next_mixture_ || !core_.deployment.take_gpulets_changed()) return;
  if (!core_.deployment.rollout() && core_.deployment.missing().empty()) return;
  const std::size_t begun = mix(now, effects);
  if (core_.deployment.rollout() || begun == 0) return;
  core_.log.note(false,
                 fmt::format("{} of the plan in force {} now", counted(begun, "gpulet"),
                             begun == 1 ? "serves" : "serve"),
                 now, effects);
  // Stages that depended on them were given up.
  core_.plan_requests.add("gpulets became ready after their plan had come into force");
}

std::size_t RolloutController::mix(Time now, FrontendEffects& effects) {
  constexpr Duration kForEach = std::chrono::microseconds(50);
  constexpr Duration kMost = std::chrono::milliseconds(100);
  Deployment& deployment = core_.deployment;
  const schedule::WantedParts wanted = deployment.wanted();
  next_mixture_ = now + std::min(kMost, static_cast<std::int64_t>(wanted.size()) * kForEach);
  const std::set<GpuletId> ready = ready_of(wanted);
  const std::set<std::string> together = with_next_version(wanted);
  const schedule::MixtureChange change =
      schedule::next_mixture({core_.backends.cluster(), *core_.profiles.profiles,
                              core_.profiles.interference.get(), deployment.serving(), wanted,
                              ready, deployment.lost_models(), deployment.least_rates(), together});
  if (change.unfinished) deployment.set_gpulets_changed();
  if (change.empty()) return 0;
  for (const GpuletId id : change.begin) assign(id, *wanted.at(id), effects);
  deployment.follow(change, wanted);
  put_routes_in_force(now, effects);
  for (const GpuletId id : change.end) deployment.retire(id, effects);
  return change.begin.size();
}

std::set<GpuletId> RolloutController::ready_of(const schedule::WantedParts& wanted) const {
  std::set<GpuletId> ready;
  for (const auto& [id, planned] : wanted) {
    const GpuletRecord* const gpulet = core_.backends.find(id);
    if (gpulet == nullptr || gpulet->retiring) continue;
    // One that is restarted keeps its place, but takes none.
    const bool restarts =
        gpulet->state == GpuletState::restarting && core_.deployment.serving().contains(id);
    if (gpulet->state == GpuletState::ready || restarts) ready.insert(ready.end(), id);
  }
  return ready;
}

std::set<std::string> RolloutController::with_next_version(
    const schedule::WantedParts& wanted) const {
  std::set<std::string> models;
  for (const auto& [id, planned] : wanted) {
    for (const schedule::Assignment& one : planned->assignments) {
      const NamedModel* const known = core_.models.find(one.model);
      if (known != nullptr && known->next) models.insert(one.model);
    }
  }
  return models;
}

void RolloutController::assign(GpuletId id, const schedule::PlannedGpulet& planned,
                               FrontendEffects& effects) {
  const GpuletRecord& gpulet = *core_.backends.find(id);
  PlanPart part = part_for(planned);
  if (gpulet.part == part) return;
  effects.emplace_back(SendToBackend{
      gpulet.backend, AssignGpulet{id, part, core_.backends.term_for(gpulet.backend)}});
  core_.backends.set_part(id, std::move(part));
}

void RolloutController::end_rollout(Time now, FrontendEffects& effects) {
  mix(now, effects);
  give_up_devices(now, effects);
  Rollout& rollout = *core_.deployment.rollout();
  rollout.give_up_postponed();
  core_.deployment.set_missing(core_.deployment.wanted(), rollout.lost_models());
  const bool whole = core_.deployment.missing().empty() && rollout.lost_models().empty();
  core_.deployment.advance(rollout.take_plan());
  put_routes_in_force(now, effects);
  for (const GpuletId id : rollout.retire()) {
    if (!core_.deployment.serving().contains(id)) core_.deployment.retire(id, effects);
  }
  const Duration took = now - rollout.began();
  // The next stage would retire the gpulets that the missing ones were to replace.
  if (!whole) core_.deployment.stages().clear();
  core_.deployment.drop_other_outages();
  core_.deployment.rollout().reset();
  report_plan_in_force(took, now, effects);
}

void RolloutController::report_plan_in_force(Duration took, Time now, FrontendEffects& effects) {
  core_.history.in_force(core_.deployment.epoch(), took, now);
  std::string text = fmt::format(
      "epoch {} serves{}, {} ms after it was decided: {} on {}", core_.deployment.epoch().value,
      core_.deployment.stages().empty() ? "" : " on the way to the plan", std::llround(to_ms(took)),
      counted(core_.deployment.serving().size(), "gpulet"),
      counted(core_.deployment.plan().devices_used(), "device"));
  if (const std::size_t missing = core_.deployment.missing().size(); missing > 0) {
    text += fmt::format("; {} still being prepared", missing);
    if (!core_.deployment.stand_ins().empty()) text += ", and what they replace serves meanwhile";
  }
  if (core_.history.decision()->moves_gpulets()) {
    core_.log.note_plan(*core_.history.decision(), std::move(text), now, effects);
  } else {  // the event of the decision is enough for the status
    effects.emplace_back(EventNote{false, std::move(text)});
  }
}

// ---- in place

template <typename Stays>
std::vector<schedule::DeviceProcess> RolloutController::processes_on(
    const schedule::DeviceKey& device, const Stays& stays) const {
  std::vector<schedule::DeviceProcess> processes;
  for (const auto& [id, gpulet] : core_.backends.gpulets()) {
    if (gpulet.device != device) continue;
    schedule::DeviceProcess& process =
        processes.emplace_back(schedule::DeviceProcess{id, {}, gpulet.instance});
    for (const schedule::RunningModel& loaded : gpulet.models)
      process.models.push_back(loaded.name);
    process.planned = stays(id);
    process.settled = !gpulet.retiring && gpulet.state != GpuletState::preparing;
  }
  return processes;
}

std::vector<PlannedOutage> RolloutController::outages_of(const schedule::Plan& plan,
                                                         const schedule::Steps& steps) const {
  std::vector<schedule::RunningGpulet> running;
  for (const auto& [id, gpulet] : core_.backends.gpulets())
    running.push_back(as_running(id, gpulet));
  std::vector<PlannedOutage> outages;
  for (const schedule::DeviceKey& key : schedule::devices_without_rollout_capacity(
           running, plan, steps, core_.backends.cluster(), *core_.profiles.profiles)) {
    const schedule::Device& device = core_.backends.offer_of(key)->device;
    std::vector<const schedule::PlannedGpulet*> waiting;
    std::vector<std::size_t> index;
    for (const std::size_t created : steps.create) {
      if (plan.gpulets[created].device != key) continue;
      waiting.push_back(&plan.gpulets[created]);
      index.push_back(created);
    }
    const auto stays = [&steps](GpuletId id) {
      return std::any_of(steps.keep.begin(), steps.keep.end(),
                         [id](const auto& one) { return one.running == id; });
    };
    const auto profile = core_.profiles.profiles->find(device.type);
    for (const schedule::Outage& expected : schedule::expected_outages(
             device, profile == core_.profiles.profiles->end() ? nullptr : &profile->second,
             processes_on(key, stays), waiting)) {
      const std::size_t until = index[expected.until];
      PlannedOutage outage = outage_of(key, expected.dark, GpuletId{until},
                                       core_.deployment.expected_load(plan.gpulets[until]));
      if (!outage.dark.empty()) outages.push_back(std::move(outage));
    }
  }
  return outages;
}

void RolloutController::replace_in_place(Time now, FrontendEffects& effects) {
  const Rollout& rollout = *core_.deployment.rollout();
  std::map<schedule::DeviceKey, std::vector<GpuletId>> waiting;
  for (const GpuletId id : rollout.postponed()) waiting[rollout.part_of(id).device].push_back(id);
  for (const auto& [key, gpulets] : waiting) {
    if (core_.backends.takes_gpulets(key)) {
      replace_on(core_.backends.offer_of(key)->device, gpulets, now, effects);
      continue;
    }
    // Another plan is made for its loss.
    for (const GpuletId id : gpulets) core_.deployment.rollout()->lost(id);
  }
}

void RolloutController::replace_on(const schedule::Device& device,
                                   const std::vector<GpuletId>& waiting, Time now,
                                   FrontendEffects& effects) {
  Rollout& rollout = *core_.deployment.rollout();
  std::vector<const schedule::PlannedGpulet*> parts;
  for (const GpuletId id : waiting) parts.push_back(&rollout.part_of(id));
  const std::vector<schedule::DeviceProcess> there =
      processes_on(device.key, [&rollout](GpuletId id) { return rollout.parts().contains(id); });
  const auto profile = core_.profiles.profiles->find(device.type);
  const schedule::Starts starts = schedule::next_starts(
      device, profile == core_.profiles.profiles->end() ? nullptr : &profile->second, there, parts);
  for (const std::size_t at : starts.start) {
    const GpuletId id = waiting[at];
    rollout.create_postponed(id, now + options_.rollout_patience);
    if (proven(*parts[at]))
      rollout.wait_longer(id, now + core_.deployment.patience(options_.rollout_patience));
    create_gpulet(id, now, effects);
  }
  if (starts.end.empty()) return;
  std::set<std::string> models;
  for (const schedule::DeviceProcess& one : there) {
    if (std::binary_search(starts.end.begin(), starts.end.end(), one.id))
      models.insert(one.models.begin(), one.models.end());
  }
  // Gpulets elsewhere may let them end without an outage.
  if (!rollout.awaits_any_of(models, now)) end_for(waiting[starts.next], starts.end, now, effects);
}

void RolloutController::end_for(GpuletId next, const std::vector<GpuletId>& dark, Time now,
                                FrontendEffects& effects) {
  Rollout& rollout = *core_.deployment.rollout();
  const schedule::PlannedGpulet& planned = rollout.part_of(next);
  PlannedOutage outage =
      outage_of(planned.device, dark, next, core_.deployment.expected_load(planned));
  for (const GpuletId id : dark) core_.deployment.serving().erase(id);
  put_routes_in_force(now, effects);
  for (const GpuletId id : dark) core_.deployment.retire(id, effects);
  core_.deployment.begin_outage(std::move(outage));
  core_.deployment.set_gpulets_changed();  // their share is free
  rollout.await_leaving(planned.device, now + options_.leave_within);
}

PlannedOutage RolloutController::outage_of(const schedule::DeviceKey& device,
                                           const std::vector<GpuletId>& ended, GpuletId until,
                                           std::optional<Duration> expected) const {
  PlannedOutage outage{device, {}, {}, until, expected};
  std::set<std::string> models;
  for (const GpuletId id : ended) {
    const auto serves = core_.deployment.serving().find(id);
    if (serves == core_.deployment.serving().end()) continue;
    outage.dark.push_back(id);
    for (const schedule::Assignment& one : serves->second.assignments) models.insert(one.model);
  }
  outage.models.assign(models.begin(), models.end());
  return outage;
}

// A device that old gpulets do not leave takes no new ones, as if these had failed there.
void RolloutController::give_up_devices(Time now, FrontendEffects& effects) {
  const Rollout& rollout = *core_.deployment.rollout();
  for (const GpuletId id : rollout.postponed()) {
    const schedule::DeviceKey device = rollout.part_of(id).device;
    if (!rollout.overdue(device, now)) {
      core_.plan_requests.add("gpulets that are replaced in place wait for their turn");
      continue;
    }
    const Status late(StatusCode::timeout,
                      "gpulets that were told to end are still on it: a new one cannot start");
    core_.failures.exclude(device, id, FailureCause::hung, late, now, effects);
    core_.plan_requests.add_urgent("gpulets did not leave their device in time");
  }
}

// ---- routes

void RolloutController::put_routes_in_force(Time now, FrontendEffects& effects) {
  Deployment::Serving& serving = core_.deployment.serving();
  std::erase_if(serving,
                [this](const auto& one) { return core_.backends.find(one.first) == nullptr; });
  std::vector<GpuletRoute> routes;
  for (const auto& [id, planned] : serving) routes.push_back(route_of(id, planned));
  DispatchOutput output;
  core_.models.begin_successions(routes, now, output);
  core_.dispatcher.set_routes(routes, now);
  for (const auto& [id, planned] : serving)
    core_.dispatcher.set_ready(id, core_.backends.find(id)->state == GpuletState::ready, now);
  core_.responses.write(std::move(output), effects);
  core_.instances.follow_routes(now, effects);
  core_.feedback.follow_routes(now);
  core_.deployment.set_routes(std::move(routes));
}

GpuletRoute RolloutController::route_of(GpuletId id, const schedule::PlannedGpulet& planned) const {
  GpuletRoute route{
      id, core_.backends.find(id)->backend, from_ms(planned.duty_cycle_ms), {}, planned.service};
  const profile::ProfileSet& profiles = *core_.profiles.profiles;
  const auto profile = profiles.find(core_.backends.offer_of(planned.device)->device.type);
  if (planned.instance && profile != profiles.end() && profile->second.knows_processes()) {
    const auto [processes, first] = core_.deployment.processes_beside(planned);
    route.processes = processes;
    route.instance = first.value;
  }
  for (const schedule::Assignment& assignment : planned.assignments) {
    const std::optional<ModelIndex> model = core_.models.version_in(id, assignment.model);
    if (!model) continue;  // it was removed since the plan was made
    SlotSpec slot{*model, execution_of(planned, assignment), assignment.rate};
    // New profiles may lack the model. Until the next plan, the previous durations count.
    if (slot.execution.empty()) slot.execution = core_.dispatcher.execution(id, *model);
    if (!slot.execution.empty()) route.slots.push_back(std::move(slot));
  }
  return route;
}

std::vector<Duration> RolloutController::execution_of(
    const schedule::PlannedGpulet& planned, const schedule::Assignment& assignment) const {
  const auto* const measured =
      core_.profiles.find(core_.backends.offer_of(planned.device), assignment.model);
  if (measured == nullptr) return {};
  const Share size = measured_size(planned.size, planned.service);
  const profile::LatencyTable& table =
      measured->latency_of(core_.deployment.processes_beside(planned).count);
  const double factor = profile::factor_of(*core_.feedback.planned(),
                                           core_.backends.offer_of(planned.device)->device.type,
                                           assignment.model, planned.size) *
                        assignment.slowdown * schedule::margin_of(options_.margin, table);
  std::vector<Duration> execution;
  for (std::uint32_t count = 1; count <= assignment.batch; ++count) {
    // The table has every size up to a planned one.
    const std::optional<double> alone_ms = table.latency_ms(count, size);
    if (!alone_ms) return {};
    execution.push_back(from_ms(*alone_ms * factor));
  }
  return execution;
}

// ---- after a restart of the frontend

void RolloutController::adopt_gpulets(BackendId backend, Time now, FrontendEffects& effects) {
  if (core_.plan_requests.begun()) return;
  Deployment::Serving& serving = core_.deployment.serving();
  std::size_t adopted = 0;
  for (const auto& [id, gpulet] : core_.backends.gpulets()) {
    if (gpulet.backend != backend || !adoptable(gpulet)) continue;
    serving[id] = {
        gpulet.device,   gpulet.size,         gpulet.part.duty_cycle_ms, gpulet.part.assignments,
        gpulet.instance, gpulet.part.service, gpulet.part.policy_choice};
    ++adopted;
  }
  if (adopted == 0) return;
  schedule::Plan plan;
  plan.policy = options_.policy;
  std::map<std::string, double> rates;
  for (const auto& [id, planned] : serving) {
    plan.gpulets.push_back(planned);
    for (const schedule::Assignment& one : planned.assignments) rates[one.model] += one.rate;
  }
  std::sort(plan.gpulets.begin(), plan.gpulets.end(), schedule::in_plan_order);
  core_.deployment.set_plan(std::move(plan));
  for (const auto& [model, rate] : rates) {
    const NamedModel* const known = core_.models.find(model);
    if (rate > 0 && known != nullptr) core_.demands.adopt(known->demand, rate, now);
  }
  put_routes_in_force(now, effects);
  core_.plan_requests.gather_until(
      now + (options_.clustered ? options_.gather : options_.gather_after_restart));
  core_.log.note(false,
                 fmt::format("goes on with {} that node {} runs", counted(adopted, "gpulet"),
                             core_.backends.backends().at(backend).node),
                 now, effects);
}

bool RolloutController::adoptable(const GpuletRecord& gpulet) const {
  if (gpulet.part.assignments.empty()) return false;
  const Share size = measured_size(gpulet.size, gpulet.part.service);
  return std::all_of(
      gpulet.part.assignments.begin(), gpulet.part.assignments.end(), [&](const auto& one) {
        const NamedModel* const model = core_.models.find(one.model);
        const auto* const measured =
            core_.profiles.find(core_.backends.offer_of(gpulet.device), one.model);
        if (model == nullptr || measured == nullptr) return false;
        const std::string& version = model->current.id;
        const bool loaded = std::any_of(
            gpulet.models.begin(), gpulet.models.end(), [&](const schedule::RunningModel& held) {
              return held.name == one.model && held.version == version &&
                     held.max_batch >= one.batch;
            });
        return loaded && measured->latency.latency_ms(one.batch, size).has_value();
      });
}

}  // namespace gpulet::serve
