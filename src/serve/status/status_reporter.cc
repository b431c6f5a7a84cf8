#include "serve/status/status_reporter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

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

ModelInfo StatusReporter::describe(const std::string& name, const NamedModel& known) const {
  ServedModelState state = served_state(name, known);
  ModelInfo info = info_of(core_.dispatcher.models()[known.current.index], state.state);
  info.version = std::move(state.version);
  info.next = std::move(state.next);
  info.reason = std::move(state.reason);
  info.next_refused = state.next_refused;
  info.pending = state.pending;
  info.number = state.number;
  return info;
}

ServedModelState StatusReporter::served_state(const std::string& name,
                                              const NamedModel& known) const {
  ServedModelState state;
  state.name = name;
  state.state = core_.models.state_of(name, known);
  state.reason = core_.models.reason_of(name, known);
  state.number = core_.models.number_of(name, known);
  if (const ServedModelState* const told = core_.models.followed(name)) {
    state.version = told->version;
    state.next = told->next;
    state.next_refused = told->next_refused;
    state.pending = told->pending;
    return state;
  }
  if (!core_.models.lacks_file(known)) state.version = known.current.id;
  if (core_.leadership.leads()) {
    state.owner = core_.routes.member_for(name);
    if (core_.routes.divided(name)) state.owners = core_.routes.owners().at(name);
  }
  if (known.next) state.next = known.next->id;
  if (known.refused && !known.current_refused()) {
    state.next = known.refused->id;
    state.next_refused = true;
  }
  // Unknown until the frontend that serves has told.
  const bool untold = !core_.leadership.leads();
  state.pending =
      untold ||
      (!options_.keep_plan &&
       (core_.plan_requests.any() || core_.plan_requests.pending() || core_.models.reorganising()));
  return state;
}

StatusReporter::WorstBucket StatusReporter::worst_bucket(const DynamicModel& dynamic) const {
  // Among equal states, a bucket that shows what becomes of the next version.
  const auto rank = [](ModelState state, const NamedModel& known) {
    return std::tuple(bucket_rank(state), !known.refused, !known.next);
  };
  WorstBucket worst;
  for (std::string& name : dynamic.names()) {
    const NamedModel* const known = core_.models.find(name);
    if (known == nullptr) continue;
    const ModelState state = core_.models.state_of(name, *known);
    if (worst.known == nullptr || rank(state, *known) < rank(worst.state, *worst.known))
      worst = {std::move(name), known, state};
  }
  return worst;
}

std::string StatusReporter::reason_of(const WorstBucket& bucket) const {
  std::string reason = core_.models.reason_of(bucket.name, *bucket.known);
  return reason.empty() ? reason : bucket.name + ": " + reason;
}

ModelInfo StatusReporter::describe(const DynamicModel& dynamic) const {
  const WorstBucket worst = worst_bucket(dynamic);
  ModelInfo info = info_of(dynamic.front, worst.state);
  if (worst.known != nullptr) {
    info = describe(worst.name, *worst.known);
    info.reason = reason_of(worst);
    // The versions of its buckets differ in the lengths only.
    info.version = file_of_version(info.version);
    info.next = file_of_version(info.next);
  }
  info.name = dynamic.front.name;
  info.inputs = dynamic.front.inputs;
  info.outputs = dynamic.front.outputs;
  for (const auto& [length, bucket] : dynamic.buckets)
    info.lengths.push_back(static_cast<std::uint32_t>(length));
  info.pads = !dynamic.front.bucket->padding.empty();
  return info;
}

ModelInfo StatusReporter::describe(const DrainingVersion& draining) const {
  ModelInfo info = info_of(core_.dispatcher.models()[draining.version.index], ModelState::leaving);
  info.version = draining.version.id;
  info.name = client_name(draining.name);
  return info;
}

ModelInfo StatusReporter::describe(const Application& application) const {
  ModelInfo info = info_of(application.front, core_.gateway.state_of(application));
  info.reason = core_.gateway.why_unserved(application);
  return info;
}

std::optional<ModelView> StatusReporter::model(std::string_view name) const {
  if (const NamedModel* const known = core_.models.find(name)) {
    const ServedModel& model = core_.dispatcher.models()[known->current.index];
    return ModelView{model, core_.models.shown_number(model.name, *known),
                     core_.models.state_of(model.name, *known),
                     core_.models.reason_of(model.name, *known)};
  }
  if (const DynamicModel* const dynamic = core_.models.dynamic().find(name)) {
    const WorstBucket worst = worst_bucket(*dynamic);
    if (worst.known == nullptr) return ModelView{dynamic->front, 1, worst.state, {}};
    return ModelView{dynamic->front, core_.models.shown_number(worst.name, *worst.known),
                     worst.state, reason_of(worst)};
  }
  if (const auto application = core_.applications.find(name))
    return ModelView{application->front, 1, core_.gateway.state_of(*application),
                     core_.gateway.why_unserved(*application), application};
  return std::nullopt;
}

ModelsReply StatusReporter::models_after(const std::string& name, std::size_t most) const {
  // By name: the first draining version of a removed model; null: the name is served.
  std::map<std::string_view, const DrainingVersion*> found;
  const auto& named = core_.models.all();
  for (auto one = named.upper_bound(name); one != named.end() && found.size() <= most; ++one) {
    if (core_.models.served(one->second).bucket == nullptr) found.emplace(one->first, nullptr);
  }
  const auto& dynamic = core_.models.dynamic().all();
  std::size_t left = most + 1;
  for (auto one = dynamic.upper_bound(name); one != dynamic.end() && left > 0; ++one, --left)
    found.emplace(one->first, nullptr);
  for (const DrainingVersion& draining : core_.models.draining()) {
    const std::string_view listed = client_name(draining.name);
    if (draining.removed && listed > name && !is_served(listed)) found.emplace(listed, &draining);
  }
  const std::vector<ApplicationRunner::Row> rows =
      core_.applications.rows(core_.models.settled_at(), name, most + 1);
  for (const ApplicationRunner::Row& row : rows)
    found.emplace(row.application->front.name, nullptr);
  ModelsReply page;
  page.problems = core_.file_problems.all();
  for (const auto& [listed, draining] : found) {
    if (page.models.size() == most) {
      page.more = true;
      break;
    }
    if (draining != nullptr) {
      page.models.push_back(describe(*draining));
    } else if (const NamedModel* const known = core_.models.find(listed)) {
      page.models.push_back(describe(std::string(listed), *known));
    } else if (const DynamicModel* const listed_dynamic = core_.models.dynamic().find(listed)) {
      page.models.push_back(describe(*listed_dynamic));
    } else {
      page.models.push_back(describe(*core_.applications.find(listed)));
    }
  }
  return page;
}

bool StatusReporter::is_served(std::string_view name) const {
  return core_.models.find(name) != nullptr || core_.models.dynamic().find(name) != nullptr;
}

std::vector<ModelInfo> StatusReporter::models(std::vector<std::string> names) const {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<ModelInfo> infos;
  for (const std::string& name : names) {
    if (const NamedModel* const known = core_.models.find(name)) {
      infos.push_back(describe(name, *known));
      continue;
    }
    if (const DynamicModel* const dynamic = core_.models.dynamic().find(name)) {
      infos.push_back(describe(*dynamic));
      continue;
    }
    for (const DrainingVersion& draining : core_.models.draining()) {
      if (!draining.removed || client_name(draining.name) != name) continue;
      infos.push_back(describe(draining));
      if (draining.name != name) break;  // one for all buckets
    }
  }
  return infos;
}

bool StatusReporter::serving() const {
  const bool started = core_.deployment.epoch().value > 0 || !core_.deployment.serving().empty();
  if (core_.admission.draining()) return false;
  if (core_.leadership.leads()) return started && core_.backends.has_usable_device();
  const ServedModels* const elsewhere = core_.forwarder.served();
  return core_.owned.any() || (elsewhere != nullptr && elsewhere->serving);
}

ServedModels StatusReporter::served_models() const {
  ServedModels served;
  if (!core_.leadership.leads()) return served;
  served.serving = serving();
  served.models.reserve(core_.models.all().size());
  for (const auto& [name, known] : core_.models.all())
    served.models.push_back(served_state(name, known));
  return served;
}

void StatusReporter::tick(Duration since_last) {
  const Deployment::Serving& serving = core_.deployment.serving();
  std::erase_if(busy_, [&serving](const auto& entry) { return !serving.contains(entry.first); });
  for (const auto& [id, planned] : serving) {
    Busy& busy = busy_[id];
    const Duration executed = statistics_of(id).executed;
    busy.fraction =
        std::min(1.0, to_seconds(executed - busy.executed_at_tick) / to_seconds(since_last));
    busy.executed_at_tick = executed;
  }
}

FrontendStatus StatusInSteps::finish() && {
  status_.devices.reserve(devices_.size());
  for (auto& [key, one] : devices_) status_.devices.push_back(std::move(one));
  return std::move(status_);
}

FrontendStatus StatusReporter::status(Time now) const {
  StatusInSteps taken(now);
  while (!take(taken, std::numeric_limits<std::size_t>::max())) {
  }
  return std::move(taken).finish();
}

bool StatusReporter::take(StatusInSteps& taken, std::size_t parts) const {
  using Stage = bool (StatusReporter::*)(StatusInSteps&, std::size_t) const;
  constexpr std::array<Stage, 5> kStages = {
      &StatusReporter::take_whole, &StatusReporter::take_backends, &StatusReporter::take_gpulets,
      &StatusReporter::take_models, &StatusReporter::take_applications};
  if (taken.stage_ < kStages.size() && (this->*kStages[taken.stage_])(taken, parts)) ++taken.stage_;
  return taken.stage_ == kStages.size();
}

bool StatusReporter::take_whole(StatusInSteps& taken, std::size_t /*parts*/) const {
  FrontendStatus& status = taken.status_;
  status.leadership = core_.leadership.status();
  status.forwarding = core_.forwarder.status();
  status.owned_gpulets = core_.owned.gpulets();
  if (core_.leadership.leads()) {
    status.owners = core_.ownership.status();
    status.owned_gpulets = core_.deployment.serving().size();
    for (OwnerStatus& owner : status.owners) {
      if (owner.member.empty()) {
        owner.member = options_.member;
      } else {
        status.owned_gpulets -= owner.gpulets;
      }
    }
  }
  status.state = core_.admission.draining()  ? "draining"
                 : !core_.leadership.leads() ? (serving() ? "forwarding" : "standby")
                 : core_.deployment.serving().empty() && core_.deployment.epoch().value == 0
                     ? "starting"
                 : !core_.backends.why_nothing_serves().empty() ? "unavailable"
                                                                : "serving";
  status.ready = serving();
  status.policy = options_.policy;
  status.epoch = core_.deployment.epoch();
  status.reorganising = core_.plan_requests.pending() || core_.models.reorganising();
  status.schedulable = core_.deployment.plan().schedulable();
  status.reorganisations = core_.history.counters();
  status.violations = core_.messages.violations();
  status.exclusions = core_.exclusions.in_force();
  status.failures = core_.failures.counts();
  status.controlled_nodes = core_.control.nodes();
  status.corrections = core_.feedback.corrections();
  if (core_.leadership.leads()) status.estimates = core_.estimates.status();
  status.events = core_.log.events();
  status.outages = core_.deployment.outages();
  status.unloaded = core_.catalogue.unloaded();
  status.plans = core_.history.plans();
  status.file_problems = core_.file_problems.all();
  for (const DrainingVersion& draining : core_.models.draining()) {
    std::string name(client_name(draining.name));
    if (!draining.removed || is_served(name)) continue;
    if (std::find(status.leaving.begin(), status.leaving.end(), name) == status.leaving.end())
      status.leaving.push_back(std::move(name));
  }
  return true;
}

bool StatusReporter::take_backends(StatusInSteps& taken, std::size_t parts) const {
  const auto& all = core_.backends.backends();
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
      device.slowness = core_.feedback.slowness_of(device.key);
    }
    taken.backend_ = id;
    done += 1 + backend.devices.size();
  }
  return one == all.end();
}

bool StatusReporter::take_gpulets(StatusInSteps& taken, std::size_t parts) const {
  const auto& all = core_.backends.gpulets();
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

bool StatusReporter::take_models(StatusInSteps& taken, std::size_t parts) const {
  const auto& all = core_.models.all();
  auto one = all.upper_bound(taken.name_);
  for (std::size_t done = 0; one != all.end() && done < parts; ++one, ++done) {
    taken.status_.models.push_back(status_of(one->first, one->second, taken.now_));
    taken.name_ = one->first;
  }
  if (one == all.end()) taken.name_.clear();
  return one == all.end();
}

bool StatusReporter::take_applications(StatusInSteps& taken, std::size_t parts) const {
  const auto rows = core_.applications.rows(taken.now_, taken.name_, parts);
  for (const auto& row : rows) taken.status_.models.push_back(status_of(row, taken.now_));
  if (rows.empty()) return true;
  taken.name_ = rows.back().application->front.name;
  return rows.size() < parts;
}

GpuletStatistics StatusReporter::statistics_of(GpuletId id) const {
  return sum_of(core_.dispatcher.statistics(id), core_.figures.statistics(id));
}

GpuletStatus StatusReporter::status_of(GpuletId id, const GpuletRecord& gpulet, Time now) const {
  GpuletStatus one{id,
                   gpulet,
                   std::nullopt,
                   core_.dispatcher.in_flight(id) + core_.figures.in_flight(id),
                   0,
                   statistics_of(id)};
  if (const auto planned = core_.deployment.serving().find(id);
      planned != core_.deployment.serving().end())
    one.planned = planned->second;
  if (const auto busy = busy_.find(id); busy != busy_.end()) one.busy = busy->second.fraction;
  one.cores = core_.control.cores_of(id);
  one.pace = core_.dispatcher.pace(id, now);
  return one;
}

ModelStatus StatusReporter::status_of(const std::string& name, const NamedModel& known,
                                      Time now) const {
  const ModelIndex index = known.current.index;
  observe::Histogram latencies = core_.dispatcher.latencies(index, now);
  const ReportedFigures::Model* const reported = core_.figures.find(name);
  if (reported != nullptr) latencies.add(reported->latency.recent(now));
  ModelStatus one;
  one.name = name;
  one.state = core_.models.state_of(name, known);
  one.version = known.current.id;
  one.slo_ms = core_.dispatcher.models()[index].slo_ms;
  one.rate_seen = core_.demands.rate_seen(known.demand);
  one.rate_planned = core_.demands.rate_planned(known.demand);
  one.queued = core_.dispatcher.queued(index);
  one.counters = core_.dispatcher.counters(index);
  one.p50_ms = to_ms(latencies.percentile(0.5));
  one.p99_ms = to_ms(latencies.percentile(0.99));
  one.statistics = core_.dispatcher.statistics(index);
  one.number = core_.models.shown_number(name, known);
  if (const schedule::Unserved* const unserved = core_.deployment.unserved_part(name)) {
    one.rate_unserved = unserved->rate;
    one.missing = core_.history.missing(name);
  }
  one.reason = core_.models.reason_of(name, known);
  one.crashes = core_.models.quarantine().crashes(name);
  one.quarantined_for = core_.models.quarantine().left(name, now);
  one.control = core_.control.status_of(name);
  one.last_minute = core_.dispatcher.outcomes(index).of_minute(now);
  one.latest = core_.dispatcher.outcomes(index).of_now(now);
  one.pace = core_.dispatcher.pace(index, now);
  if (core_.leadership.leads()) {
    one.owner = core_.routes.member_for(name);
    if (core_.routes.divided(name)) one.owners = core_.routes.owners().at(name);
  }
  if (reported != nullptr) {
    one.elsewhere = reported->counters;
    one.queued += reported->queued_anywhere();
    one.last_minute = sum_of(one.last_minute, reported->outcomes.of_minute(now));
    one.latest = sum_of(one.latest, reported->outcomes.of_now(now));
  }
  one.correction = core_.feedback.correction_of(name);
  one.estimated = core_.estimates.estimates(name);
  one.disturbs = core_.feedback.why_disturbs(name);
  one.extra_headroom = core_.feedback.extra_headroom_of(name);
  return one;
}

ModelStatus StatusReporter::status_of(const ApplicationRunner::Row& row, Time now) const {
  ModelStatus one;
  one.name = row.application->front.name;
  one.state = core_.gateway.state_of(*row.application);
  one.slo_ms = row.application->front.slo_ms;
  one.rate_seen = row.rate_seen;
  one.rate_planned = std::numeric_limits<double>::infinity();
  for (const auto& [name, calls] : ApplicationGateway::calls_of(*row.application)) {
    const NamedModel* const known = core_.models.find(name);
    const double rate = known == nullptr ? 0 : core_.demands.rate_planned(known->demand);
    one.rate_planned = std::min(one.rate_planned, rate / static_cast<double>(calls));
    one.calls.push_back(name);
  }
  one.reason = core_.gateway.why_unserved(*row.application);
  one.queued = row.runs;
  one.counters = row.counters;
  one.p50_ms = to_ms(row.latencies.percentile(0.5));
  one.p99_ms = to_ms(row.latencies.percentile(0.99));
  one.statistics = row.statistics;
  one.application = true;
  one.last_minute = row.outcomes.of_minute(now);
  one.latest = row.outcomes.of_now(now);
  return one;
}

std::optional<ModelStatus> StatusReporter::model_status(std::string_view name, Time now) const {
  if (const NamedModel* const known = core_.models.find(name))
    return status_of(std::string(name), *known, now);
  if (const auto row = core_.applications.row(std::string(name), now)) return status_of(*row, now);
  return std::nullopt;
}

double StatusReporter::fraction_of_device(GpuletId id, const GpuletRecord& gpulet) const {
  const std::optional<control::Cores> cores = core_.control.cores_of(id);
  const DeviceOffer* const offer = core_.backends.offer_of(gpulet.device);
  return cores && offer != nullptr ? cores->granted / offer->device.cores : gpulet.size.fraction();
}

void StatusReporter::add_to_device(DeviceStatus& device, GpuletId id,
                                   const GpuletRecord& gpulet) const {
  if (core_.deployment.serving().contains(id)) {
    const double part = fraction_of_device(id, gpulet);
    device.used.percent += static_cast<int>(std::lround(100 * part));
    if (const auto busy = busy_.find(id); busy != busy_.end())
      device.busy += busy->second.fraction * part;
  }
  const auto profile = core_.profiles.profiles->find(device.type);
  if (profile == core_.profiles.profiles->end()) return;
  for (const schedule::RunningModel& loaded : gpulet.models) {
    const profile::ModelProfile* const measured = profile->second.find(loaded.name);
    if (measured != nullptr) device.planned_memory_mb += measured->memory_mb.value_or(0);
  }
}

}  // namespace gpulet::serve
