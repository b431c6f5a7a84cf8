// What FrontendCore tells about itself.
#include <algorithm>
#include <cmath>
#include <map>

#include "gpulet/serve/frontend_core.h"

namespace gpulet::serve {

namespace {

ModelInfo info_of(const ServedModel& model, ModelState state) {
  ModelInfo info;
  info.name = model.name;
  info.inputs = model.inputs;
  info.outputs = model.outputs;
  info.slo_ms = model.slo_ms;
  info.max_batch = model.max_batch;
  info.state = state;
  return info;
}

}  // namespace

ModelInfo FrontendCore::describe(const std::string& name, const NamedModel& known) const {
  ModelInfo info = info_of(dispatcher_.models()[known.current.index], state_of(name, known));
  info.version = known.current.id;
  if (known.next) info.next = known.next->id;
  if (known.refused && !known.current_refused()) {
    info.next = known.refused->id;
    info.next_refused = true;
  }
  info.reason = reason_of(name, known);
  info.number = known.number;
  return info;
}

ModelInfo FrontendCore::describe(const Application& application) const {
  ModelInfo info = info_of(application.front, state_of(application));
  info.reason = why_unserved(application);
  return info;
}

std::optional<ModelView> FrontendCore::model(std::string_view name) const {
  if (const NamedModel* const known = versions_.find(name)) {
    const ServedModel& model = dispatcher_.models()[known->current.index];
    return ModelView{model, known->number, state_of(model.name, *known),
                     reason_of(model.name, *known)};
  }
  if (const auto application = applications_.find(name))
    return ModelView{application->front, 1, state_of(*application), why_unserved(*application)};
  return std::nullopt;
}

ModelsReply FrontendCore::models() const {
  ModelsReply reply;
  for (const auto& [name, known] : versions_.named()) reply.models.push_back(describe(name, known));
  for (const LeavingVersion& leaving : versions_.leaving()) {
    if (!leaving.removed || versions_.find(leaving.name) != nullptr) continue;
    ModelInfo info = info_of(dispatcher_.models()[leaving.version.index], ModelState::leaving);
    info.version = leaving.version.id;
    reply.models.push_back(std::move(info));
  }
  describe_applications(reply);
  return reply;
}

FrontendStatus FrontendCore::status(Time now) const {
  FrontendStatus status;
  status.state = draining_                               ? "draining"
                 : serving_.empty() && epoch_.value == 0 ? "starting"
                 : !why_nothing_serves().empty()         ? "unavailable"
                                                         : "serving";
  status.ready = serving();
  status.policy = options_.policy;
  status.epoch = epoch_;
  status.reorganising = plan_pending_ || rolls_out();
  status.schedulable = plan_.schedulable();
  status.reorganisations = reorganisation_counters_;
  status.backends = fleet_.backends();
  status.violations = violations_;
  status.devices = device_status();
  status.exclusions = exclusions_.in_force();
  status.failures = failures_;
  for (const auto& [id, gpulet] : fleet_.gpulets()) {
    GpuletStatus one{
        id, gpulet, std::nullopt, dispatcher_.in_flight(id), 0, dispatcher_.statistics(id)};
    if (const auto planned = serving_.find(id); planned != serving_.end())
      one.planned = planned->second;
    if (const auto busy = busy_.find(id); busy != busy_.end()) one.busy = busy->second.fraction;
    one.cores = control_.cores_of(id);
    status.gpulets.push_back(std::move(one));
  }
  for (const auto& [name, known] : versions_.named()) {
    const ModelIndex index = known.current.index;
    const observe::Histogram latencies = dispatcher_.latencies(index, now);
    ModelStatus one;
    one.name = name;
    one.state = state_of(name, known);
    one.version = known.current.id;
    one.slo_ms = dispatcher_.models()[index].slo_ms;
    one.rate_seen = demands_.rate_seen(known.demand);
    one.rate_planned = demands_.rate_planned(known.demand);
    one.queued = dispatcher_.queued(index);
    one.counters = dispatcher_.counters(index);
    one.p50_ms = to_ms(latencies.percentile(0.5));
    one.p99_ms = to_ms(latencies.percentile(0.99));
    one.statistics = dispatcher_.statistics(index);
    one.number = known.number;
    const auto unserved =
        std::find_if(plan_.unserved.begin(), plan_.unserved.end(),
                     [&name = name](const auto& candidate) { return candidate.model == name; });
    if (unserved != plan_.unserved.end()) one.rate_unserved = unserved->rate;
    one.reason = reason_of(name, known);
    one.crashes = quarantine_.crashes(name);
    one.quarantined_for = quarantine_.left(name, now);
    one.control = control_.status_of(name);
    status.models.push_back(std::move(one));
  }
  describe_applications(status, now);
  status.controlled_nodes = control_.nodes();
  status.events = events_;
  return status;
}

// Of its device.
double FrontendCore::part_of(GpuletId id, const FleetGpulet& gpulet) const {
  const std::optional<control::Cores> cores = control_.cores_of(id);
  const DeviceOffer* const offer = fleet_.offer_of(gpulet.device);
  return cores && offer != nullptr ? cores->given / offer->device.cores : gpulet.size.fraction();
}

std::vector<DeviceStatus> FrontendCore::device_status() const {
  std::map<schedule::DeviceKey, DeviceStatus> devices;
  for (const auto& [id, backend] : fleet_.backends()) {
    for (const DeviceOffer& offer : backend.devices) {
      DeviceStatus& one = devices[offer.device.key];
      one.key = offer.device.key;
      one.type = offer.device.type;
      one.memory_mb = offer.device.memory_mb;
    }
  }
  for (const auto& [id, gpulet] : fleet_.gpulets()) {
    const auto device = devices.find(gpulet.device);
    if (device == devices.end()) continue;
    DeviceStatus& one = device->second;
    if (serving_.contains(id)) {
      const double part = part_of(id, gpulet);
      one.used.percent += static_cast<int>(std::lround(100 * part));
      if (const auto busy = busy_.find(id); busy != busy_.end())
        one.busy += busy->second.fraction * part;
    }
    const auto profile = profiles_->find(one.type);
    if (profile == profiles_->end()) continue;
    for (const schedule::LoadedModel& loaded : gpulet.models) {
      const profile::ModelProfile* const measured = profile->second.find(loaded.name);
      if (measured != nullptr) one.planned_memory_mb += measured->memory_mb.value_or(0);
    }
  }
  std::vector<DeviceStatus> ordered;
  for (auto& [key, one] : devices) ordered.push_back(std::move(one));
  return ordered;
}

}  // namespace gpulet::serve
