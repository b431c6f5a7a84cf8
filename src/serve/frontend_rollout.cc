// FrontendCore: a plan's way into force.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "gpulet/schedule/shadow_room.h"
#include "gpulet/serve/frontend_core.h"
#include "serve/wording.h"

namespace gpulet::serve {
namespace {

constexpr std::size_t kModelsCreatedAtOnce = 512;  // of the gpulets that are created in one turn

// Whose latency says what a gpulet of that size can serve.
Share measured_size(Share size, schedule::Service service) {
  return service == schedule::Service::controlled ? kWholeDevice : size;
}

PlanPart part_for(const schedule::PlannedGpulet& planned) {
  return {planned.duty_cycle_ms, planned.assignments, planned.service};
}

}  // namespace

void FrontendCore::begin_rollout(schedule::Plan plan, schedule::Steps steps, Time now,
                                 FrontendEffects& effects) {
  gpulets_changed_ = true;
  std::vector<schedule::RunningGpulet> there;
  for (const auto& [id, gpulet] : fleet_.gpulets()) there.push_back(as_running(id, gpulet));
  std::set<schedule::DeviceKey> in_place =
      schedule::devices_without_shadow_room(there, plan, steps, fleet_.cluster(), *profiles_);
  for (const schedule::DeviceKey& device : in_place) {
    const std::string text = "device " + device_name(device) +
                             " has no room for new gpulets beside the old ones: they are "
                             "replaced in place";
    plan.notes.push_back(text);
    note(false, text, now, effects);
  }
  rollout_.emplace(
      std::move(plan), std::move(steps), std::move(in_place),
      [this] { return GpuletId{next_gpulet_++}; }, now, options_.preparing_timeout);
  for (const auto& [id, part] : rollout_->parts()) {
    const FleetGpulet* const kept = fleet_.find(id);
    if (kept != nullptr && !rollout_->is_new(id) && kept->state == GpuletState::preparing)
      rollout_->await(id);
  }
  create_shadows(now, effects);
}

void FrontendCore::create_shadows(Time now, FrontendEffects& effects) {
  std::size_t models = 0;
  while (models < kModelsCreatedAtOnce && rollout_->has_shadows()) {
    const GpuletId id = rollout_->take_shadow();
    models += rollout_->part_of(id).assignments.size();
    create_gpulet(id, now, effects);
  }
}

// Nothing to make where its node, or all of its models, went since the plan was made.
void FrontendCore::create_gpulet(GpuletId id, Time now, FrontendEffects& effects) {
  const schedule::PlannedGpulet planned = rollout_->part_of(id);
  const std::optional<BackendId> backend = fleet_.backend_of(planned.device);
  CreateGpulet create{id, planned.device.device, planned.size, {}, part_for(planned)};
  std::vector<schedule::LoadedModel> loaded;
  for (const schedule::Assignment& assignment : planned.assignments) {
    const NamedModel* const known = versions_.find(assignment.model);
    if (known == nullptr) continue;
    const ModelVersion& version = known->wanted();
    const ServedModel& model = dispatcher_.models()[version.index];
    // Prepared for somewhat larger batches than planned: the next plan may keep it then.
    std::uint32_t max_batch = 1;
    while (max_batch < assignment.batch) max_batch *= 2;
    max_batch = std::max(assignment.batch, std::min(max_batch, model.max_batch));
    create.models.push_back(
        {model.name, model.sha256, model.inputs, model.outputs, max_batch, model.numerics});
    loaded.push_back({model.name, max_batch, version.id});
  }
  if (!backend || create.models.empty()) {
    rollout_->lost(id);
    want_plan("nodes or models went while a plan came into force");
    return;
  }
  std::sort(loaded.begin(), loaded.end());
  create.memory_mb = memory_needed_mb(planned);
  create.instance = planned.instance;
  fleet_.created(create, planned.device, std::move(loaded), now);
  effects.emplace_back(TellBackend{*backend, std::move(create)});
}

// Of what was measured on that type of device; 0 where one of the models was not.
double FrontendCore::memory_needed_mb(const schedule::PlannedGpulet& planned) const {
  double sum_mb = 0;
  for (const schedule::Assignment& assignment : planned.assignments) {
    const profile::ModelProfile* const measured = profile_of(planned.device, assignment.model);
    if (measured == nullptr || !measured->memory_mb) return 0;
    sum_mb += *measured->memory_mb;
  }
  return sum_mb;
}

void FrontendCore::retire_gpulet(GpuletId id, FrontendEffects& effects) {
  const FleetGpulet* gpulet = fleet_.find(id);
  if (gpulet == nullptr || gpulet->retiring) return;
  effects.emplace_back(TellBackend{gpulet->backend, RetireGpulet{id}});
  fleet_.retiring(id);
}

void FrontendCore::release_leaving(FrontendEffects& effects) {
  for (const auto& [id, gpulet] : fleet_.gpulets()) {
    if (fleet_.backends().at(gpulet.backend).leaving) retire_gpulet(id, effects);
  }
}

void FrontendCore::advance_rollout(Time now, FrontendEffects& effects) {
  if (!rollout_) follow_stages(now, effects);
  if (!rollout_) return;
  if (rollout_->has_shadows()) return create_shadows(now, effects);
  if (rollout_->must_clear(now)) clear_devices(now, effects);
  const bool changed = std::exchange(gpulets_changed_, false);
  if (changed && rollout_->clearing()) make_postponed(now, effects);
  if (rollout_->complete(now)) {
    activate(now, effects);
  } else if (changed) {
    route_unserved_models(now, effects);
  }
}

// A model that nobody serves now need not wait for the others' gpulets.
void FrontendCore::route_unserved_models(Time now, FrontendEffects& effects) {
  bool joined = false;
  for (const auto& [id, part] : rollout_->parts()) {
    if (rollout_->awaits(id) || rollout_->postponed().contains(id) || serving_.contains(id))
      continue;
    const schedule::PlannedGpulet& planned = rollout_->part_of(id);
    const bool needed = std::any_of(planned.assignments.begin(), planned.assignments.end(),
                                    [this](const auto& one) { return !has_ready_lane(one.model); });
    if (!needed) continue;
    serving_[id] = planned;
    joined = true;
  }
  if (joined) put_routes_in_force(now, effects);
}

// A frontend that restarted serves with what it finds, before it has made a plan of its own.
void FrontendCore::adopt_gpulets(BackendId backend, Time now, FrontendEffects& effects) {
  if (plan_number_ > 0) return;
  std::size_t adopted = 0;
  for (const auto& [id, gpulet] : fleet_.gpulets()) {
    if (gpulet.backend != backend || !adoptable(gpulet)) continue;
    serving_[id] = {gpulet.device,           gpulet.size,     gpulet.part.duty_cycle_ms,
                    gpulet.part.assignments, gpulet.instance, gpulet.part.service};
    ++adopted;
  }
  if (adopted == 0) return;
  set_plan({});
  plan_.policy = options_.policy;
  std::map<std::string, double> rates;
  for (const auto& [id, planned] : serving_) {
    plan_.gpulets.push_back(planned);
    for (const schedule::Assignment& one : planned.assignments) rates[one.model] += one.rate;
  }
  std::sort(plan_.gpulets.begin(), plan_.gpulets.end(), [](const auto& a, const auto& b) {
    return std::tie(a.device, b.size) < std::tie(b.device, a.size);
  });
  for (const auto& [model, rate] : rates) {
    const NamedModel* const known = versions_.find(model);
    if (rate > 0 && known != nullptr) demands_.adopt(known->demand, rate, now);
  }
  put_routes_in_force(now, effects);
  gather_until_ = now + options_.gather_after_restart;
  note(false,
       "goes on with " + counted(adopted, "gpulet") + " that node " +
           fleet_.backends().at(backend).node + " runs",
       now, effects);
}

bool FrontendCore::adoptable(const FleetGpulet& gpulet) const {
  if (gpulet.part.assignments.empty()) return false;
  const Share size = measured_size(gpulet.size, gpulet.part.service);
  return std::all_of(
      gpulet.part.assignments.begin(), gpulet.part.assignments.end(), [&](const auto& one) {
        const NamedModel* const model = versions_.find(one.model);
        const profile::ModelProfile* const measured = profile_of(gpulet.device, one.model);
        if (model == nullptr || measured == nullptr) return false;
        const std::string& version = model->current.id;
        const bool loaded = std::any_of(
            gpulet.models.begin(), gpulet.models.end(), [&](const schedule::LoadedModel& held) {
              return held.name == one.model && held.version == version &&
                     held.max_batch >= one.batch;
            });
        return loaded && measured->latency.latency_ms(one.batch, size).has_value();
      });
}

// What is ready serves beside the old ones; those on devices without room for both go.
void FrontendCore::clear_devices(Time now, FrontendEffects& effects) {
  std::vector<GpuletId> leaving;
  for (const auto& [id, gpulet] : fleet_.gpulets()) {
    const bool stays = rollout_->parts().contains(id);
    if (!stays && rollout_->in_place().contains(gpulet.device)) leaving.push_back(id);
  }
  for (const GpuletId id : leaving) serving_.erase(id);
  for (const auto& [id, part] : rollout_->parts()) {
    const FleetGpulet* gpulet = fleet_.find(id);
    if (gpulet != nullptr && gpulet->state == GpuletState::ready)
      serving_[id] = rollout_->part_of(id);
  }
  put_routes_in_force(now, effects);
  for (const GpuletId id : leaving) retire_gpulet(id, effects);
  rollout_->clear(now, options_.preparing_timeout);
  gpulets_changed_ = true;
}

void FrontendCore::make_postponed(Time now, FrontendEffects& effects) {
  const std::set<GpuletId> postponed = rollout_->postponed();
  for (const GpuletId id : postponed) {
    const schedule::DeviceKey& device = rollout_->part_of(id).device;
    if (!fleet_.takes_gpulets(device)) {  // its node has gone, which is planned for
      rollout_->lost(id);
      continue;
    }
    const bool cleared = std::none_of(
        fleet_.gpulets().begin(), fleet_.gpulets().end(), [this, &device](const auto& entry) {
          return entry.second.device == device && !rollout_->parts().contains(entry.first);
        });
    if (!cleared) continue;
    rollout_->make(id);
    create_gpulet(id, now, effects);
  }
}

void FrontendCore::activate(Time now, FrontendEffects& effects) {
  for (const GpuletId id : rollout_->give_up_awaited()) {
    const Status late(StatusCode::timeout, "a gpulet was not ready in time and is given up");
    note(true, late.message(), now, effects);
    if (const FleetGpulet* const gpulet = fleet_.find(id))
      exclude(schedule::DeviceKey(gpulet->device), id, FailureCause::hung, late, now, effects);
    retire_gpulet(id, effects);
    want_plan("a gpulet was not ready in time");
  }
  serving_.clear();
  for (const auto& [id, part] : rollout_->parts()) {
    const FleetGpulet* const gpulet = fleet_.find(id);
    if (gpulet == nullptr) continue;
    serving_[id] = rollout_->part_of(id);
    PlanPart told = part_for(serving_[id]);
    if (gpulet->part == told) continue;
    effects.emplace_back(TellBackend{gpulet->backend, AssignGpulet{id, told}});
    fleet_.assigned(id, std::move(told));
  }
  set_plan(rollout_->take_plan());
  ++epoch_.value;
  put_routes_in_force(now, effects);
  for (const GpuletId id : rollout_->retire()) retire_gpulet(id, effects);
  const Duration took = now - rollout_->began();
  reorganisation_counters_.last_took = took;
  reorganisation_counters_.longest_took = std::max(reorganisation_counters_.longest_took, took);
  reorganisation_counters_.took.record(took);
  ++reorganisation_counters_.plans;
  record_.in_force(epoch_, now);
  // The next stage would take away what those that are missing were to stand in for.
  if (rollout_->parts().size() < plan_.gpulets.size()) stages_.clear();
  rollout_.reset();
  std::string text = "epoch " + std::to_string(epoch_.value) + " serves" +
                     (stages_.empty() ? "" : " on the way to the plan") + ", " +
                     std::to_string(std::llround(to_ms(took))) +
                     " ms after it was decided: " + counted(serving_.size(), "gpulet") + " on " +
                     counted(plan_.devices_used(), "device");
  if (record_.decision()->moves_gpulets()) {
    note_of_plan(false, std::move(text), now, effects);
  } else {  // the event of the decision says it all
    effects.emplace_back(Note{false, std::move(text)});
  }
}

void FrontendCore::set_plan(schedule::Plan plan) {
  plan_ = std::move(plan);
  unserved_.clear();
  for (std::size_t i = 0; i < plan_.unserved.size(); ++i)
    unserved_.try_emplace(plan_.unserved[i].model, i);
}

void FrontendCore::cancel_rollout(FrontendEffects& effects) {
  stages_.clear();
  if (!rollout_) return;
  for (const auto& [id, part] : rollout_->parts()) {
    if (rollout_->is_new(id) && !serving_.contains(id)) retire_gpulet(id, effects);
  }
  rollout_.reset();
}

// REQUIRES: the fleet has the gpulet.
Route FrontendCore::route_of(GpuletId id, const schedule::PlannedGpulet& planned) const {
  Route route{id, fleet_.find(id)->backend, from_ms(planned.duty_cycle_ms), {}, planned.service};
  for (const schedule::Assignment& assignment : planned.assignments) {
    const std::optional<ModelIndex> model = lane_model(id, assignment.model);
    if (!model) continue;  // it was removed since the plan was made
    LaneSpec lane{*model, execution_of(planned, assignment)};
    // The profiles have changed and lack it: the next plan will know, until then the old times do.
    if (lane.execution.empty()) lane.execution = dispatcher_.execution(id, *model);
    if (!lane.execution.empty()) route.lanes.push_back(std::move(lane));
  }
  return route;
}

const profile::ModelProfile* FrontendCore::profile_of(const schedule::DeviceKey& device,
                                                      const std::string& model) const {
  const DeviceOffer* const offer = fleet_.offer_of(device);
  const auto profile = offer == nullptr ? profiles_->end() : profiles_->find(offer->device.type);
  return profile == profiles_->end() ? nullptr : profile->second.find(model);
}

std::vector<Duration> FrontendCore::execution_of(const schedule::PlannedGpulet& planned,
                                                 const schedule::Assignment& assignment) const {
  const profile::ModelProfile* const measured = profile_of(planned.device, assignment.model);
  if (measured == nullptr) return {};
  const Share size = measured_size(planned.size, planned.service);
  std::vector<Duration> execution;
  for (std::uint32_t count = 1; count <= assignment.batch; ++count) {
    // A planned batch has an answer in the table, and so has every smaller one.
    const std::optional<double> alone_ms = measured->latency.latency_ms(count, size);
    if (!alone_ms) return {};
    execution.push_back(from_ms(*alone_ms * assignment.slowdown * options_.margin));
  }
  return execution;
}

void FrontendCore::put_routes_in_force(Time now, FrontendEffects& effects) {
  std::erase_if(serving_, [this](const auto& one) { return fleet_.find(one.first) == nullptr; });
  std::vector<Route> routes;
  for (const auto& [id, planned] : serving_) routes.push_back(route_of(id, planned));
  DispatchOutput output;
  successions_ = begin_successions(routes, now, output);
  dispatcher_.set_routes(routes, now);
  for (const auto& [id, planned] : serving_) {
    dispatcher_.set_ready(id, fleet_.find(id)->state == GpuletState::ready, now);
  }
  emit(std::move(output), effects);
  sweep_goes_on_ = true;  // in the next turn, with the successions
  set_controlled(now, effects);
}

}  // namespace gpulet::serve
