// What FrontendCore tells about itself.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "gpulet/serve/frontend_core.h"
#include "gpulet/serve/status_in_steps.h"

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
  info.pending = !options_.keep_plan && (plan_wanted() || plan_pending_ || rolls_out());
  return info;
}

ModelInfo FrontendCore::describe(const LeavingVersion& leaving) const {
  ModelInfo info = info_of(dispatcher_.models()[leaving.version.index], ModelState::leaving);
  info.version = leaving.version.id;
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
    return ModelView{application->front, 1, state_of(*application), why_unserved(*application),
                     application};
  return std::nullopt;
}

ModelsReply FrontendCore::models_after(const std::string& name, std::size_t most) const {
  // The first version of a name that is leaving; null: something of that name is served. Thousands
  // may be leaving, so only the models of the page are described.
  std::map<std::string_view, const LeavingVersion*> found;
  const auto& named = versions_.named();
  for (auto one = named.upper_bound(name); one != named.end() && found.size() <= most; ++one)
    found.emplace(one->first, nullptr);
  for (const LeavingVersion& leaving : versions_.leaving()) {
    if (leaving.removed && leaving.name > name && versions_.find(leaving.name) == nullptr)
      found.emplace(leaving.name, &leaving);
  }
  const std::vector<Applications::Row> rows = applications_.rows(settled_at_, name, most + 1);
  for (const Applications::Row& row : rows) found.emplace(row.application->front.name, nullptr);
  ModelsReply page;
  page.problems = file_problems_.all();
  for (const auto& [listed, leaving] : found) {
    if (page.models.size() == most) {
      page.more = true;
      break;
    }
    if (leaving != nullptr) {
      page.models.push_back(describe(*leaving));
    } else if (const NamedModel* const known = versions_.find(listed)) {
      page.models.push_back(describe(std::string(listed), *known));
    } else {
      page.models.push_back(describe(*applications_.find(listed)));
    }
  }
  return page;
}

std::vector<ModelInfo> FrontendCore::models(std::vector<std::string> names) const {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<ModelInfo> infos;
  for (const std::string& name : names) {
    if (const NamedModel* const known = versions_.find(name)) {
      infos.push_back(describe(name, *known));
      continue;
    }
    for (const LeavingVersion& leaving : versions_.leaving()) {
      if (!leaving.removed || leaving.name != name) continue;
      infos.push_back(describe(leaving));
    }
  }
  return infos;
}

FrontendStatus StatusInSteps::finish() && {
  status_.devices.reserve(devices_.size());
  for (auto& [key, one] : devices_) status_.devices.push_back(std::move(one));
  return std::move(status_);
}

FrontendStatus FrontendCore::status(Time now) const {
  StatusInSteps taken(now);
  while (!take(taken, std::numeric_limits<std::size_t>::max())) {
  }
  return std::move(taken).finish();
}

bool FrontendCore::take(StatusInSteps& taken, std::size_t parts) const {
  using At = StatusInSteps::Stage;
  switch (taken.stage_) {
    case At::whole:
      take_whole(taken.status_);
      taken.stage_ = At::backends;
      break;
    case At::backends:
      if (take_backends(taken, parts)) taken.stage_ = At::gpulets;
      break;
    case At::gpulets:
      if (take_gpulets(taken, parts)) taken.stage_ = At::models;
      break;
    case At::models:
      if (take_models(taken, parts)) taken.stage_ = At::applications;
      break;
    case At::applications:
      if (take_applications(taken, parts)) taken.stage_ = At::done;
      break;
    case At::done:
      break;
  }
  return taken.stage_ == At::done;
}

void FrontendCore::take_whole(FrontendStatus& status) const {
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
  status.violations = violations_;
  status.exclusions = exclusions_.in_force();
  status.failures = failures_;
  status.controlled_nodes = control_.nodes();
  status.events = events_;
  status.unloaded = unloaded_;
  status.plans = record_.plans();
  status.file_problems = file_problems_.all();
  for (const LeavingVersion& leaving : versions_.leaving()) {
    if (leaving.removed && versions_.find(leaving.name) == nullptr)
      status.leaving.push_back(leaving.name);
  }
}

bool FrontendCore::take_backends(StatusInSteps& taken, std::size_t parts) const {
  const auto& all = fleet_.backends();
  auto one = taken.backend_ ? all.upper_bound(*taken.backend_) : all.begin();
  for (std::size_t done = 0; one != all.end() && done < parts; ++one) {
    const auto& [id, backend] = *one;
    taken.status_.backends.insert_or_assign(id, backend);
    for (const DeviceOffer& offer : backend.devices) {
      DeviceStatus& device = taken.devices_[offer.device.key];
      device.key = offer.device.key;
      device.type = offer.device.type;
      device.memory_mb = offer.device.memory_mb;
      const auto power = backend.power.find(offer.device.key.device);
      if (power != backend.power.end()) device.power = power->second;
    }
    taken.backend_ = id;
    done += 1 + backend.devices.size();
  }
  return one == all.end();
}

bool FrontendCore::take_gpulets(StatusInSteps& taken, std::size_t parts) const {
  const auto& all = fleet_.gpulets();
  auto one = taken.gpulet_ ? all.upper_bound(*taken.gpulet_) : all.begin();
  for (std::size_t done = 0; one != all.end() && done < parts; ++one) {
    const auto& [id, gpulet] = *one;
    taken.status_.gpulets.push_back(status_of(id, gpulet, taken.now_));
    if (const auto device = taken.devices_.find(gpulet.device); device != taken.devices_.end())
      add_to_device(device->second, id, gpulet);
    taken.gpulet_ = id;
    done += 1 + gpulet.models.size();
  }
  return one == all.end();
}

bool FrontendCore::take_models(StatusInSteps& taken, std::size_t parts) const {
  const auto& all = versions_.named();
  auto one = all.upper_bound(taken.name_);
  for (std::size_t done = 0; one != all.end() && done < parts; ++one, ++done) {
    taken.status_.models.push_back(status_of(one->first, one->second, taken.now_));
    taken.name_ = one->first;
  }
  if (one == all.end()) taken.name_.clear();
  return one == all.end();
}

bool FrontendCore::take_applications(StatusInSteps& taken, std::size_t parts) const {
  const auto rows = applications_.rows(taken.now_, taken.name_, parts);
  for (const auto& row : rows) taken.status_.models.push_back(status_of(row, taken.now_));
  if (rows.empty()) return true;
  taken.name_ = rows.back().application->front.name;
  return rows.size() < parts;
}

GpuletStatus FrontendCore::status_of(GpuletId id, const FleetGpulet& gpulet, Time now) const {
  GpuletStatus one{
      id, gpulet, std::nullopt, dispatcher_.in_flight(id), 0, dispatcher_.statistics(id)};
  if (const auto planned = serving_.find(id); planned != serving_.end())
    one.planned = planned->second;
  if (const auto busy = busy_.find(id); busy != busy_.end()) one.busy = busy->second.fraction;
  one.cores = control_.cores_of(id);
  one.pace = dispatcher_.pace(id, now);
  return one;
}

ModelStatus FrontendCore::status_of(const std::string& name, const NamedModel& known,
                                    Time now) const {
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
  if (const schedule::Unserved* const unserved = unserved_part(name)) {
    one.rate_unserved = unserved->rate;
    one.missing = record_.missing(name);
  }
  one.reason = reason_of(name, known);
  one.crashes = quarantine_.crashes(name);
  one.quarantined_for = quarantine_.left(name, now);
  one.control = control_.status_of(name);
  one.last_minute = dispatcher_.outcomes(index).of_minute(now);
  one.latest = dispatcher_.outcomes(index).of_now(now);
  one.pace = dispatcher_.pace(index, now);
  return one;
}

std::optional<ModelStatus> FrontendCore::model_status(std::string_view name, Time now) const {
  if (const NamedModel* const known = versions_.find(name))
    return status_of(std::string(name), *known, now);
  if (const auto row = applications_.row(std::string(name), now)) return status_of(*row, now);
  return std::nullopt;
}

// Of its device.
double FrontendCore::part_of(GpuletId id, const FleetGpulet& gpulet) const {
  const std::optional<control::Cores> cores = control_.cores_of(id);
  const DeviceOffer* const offer = fleet_.offer_of(gpulet.device);
  return cores && offer != nullptr ? cores->given / offer->device.cores : gpulet.size.fraction();
}

void FrontendCore::add_to_device(DeviceStatus& device, GpuletId id,
                                 const FleetGpulet& gpulet) const {
  if (serving_.contains(id)) {
    const double part = part_of(id, gpulet);
    device.used.percent += static_cast<int>(std::lround(100 * part));
    if (const auto busy = busy_.find(id); busy != busy_.end())
      device.busy += busy->second.fraction * part;
  }
  const auto profile = profiles_->find(device.type);
  if (profile == profiles_->end()) return;
  for (const schedule::LoadedModel& loaded : gpulet.models) {
    const profile::ModelProfile* const measured = profile->second.find(loaded.name);
    if (measured != nullptr) device.planned_memory_mb += measured->memory_mb.value_or(0);
  }
}

}  // namespace gpulet::serve
