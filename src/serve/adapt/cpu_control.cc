#include "serve/adapt/cpu_control.h"

#include <algorithm>
#include <cmath>

#include "gpulet/schedule/policy.h"

namespace gpulet::serve {
namespace {

// Changes below this fraction of the assigned cores are not sent.
constexpr double kSmallestChange = 0.01;

}  // namespace

void CpuControl::set(const std::vector<ControlledInstance>& instances, Time now) {
  instances_.clear();
  std::map<schedule::DeviceKey, std::vector<control::Instance>> by_device;
  std::map<schedule::DeviceKey, double> cores;
  for (const ControlledInstance& one : instances) {
    instances_.emplace(one.id, one);
    by_device[one.device].push_back({one.id, one.plant});
    cores[one.device] = one.device_cores;
    models_.try_emplace(one.model);
  }
  std::erase_if(devices_, [&](const auto& entry) { return !by_device.contains(entry.first); });
  std::erase_if(sent_, [&](const auto& entry) { return !instances_.contains(entry.first); });
  for (const auto& [device, here] : by_device) {
    const auto known = devices_.find(device);
    if (known != devices_.end() && known->second.node_cores() != cores.at(device))
      devices_.erase(known);
    devices_.try_emplace(device, options_, cores.at(device)).first->second.control(here);
  }
  if (instances_.empty()) {
    next_step_ = kNever;
  } else if (next_step_ == kNever) {
    next_step_ = now + options_.period;
    last_step_ = now;
  }
}

Responses::Period CpuControl::add_to_window(const std::string& model,
                                            const Responses::Period& answered) {
  std::deque<Responses::Period>& periods = windows_[model];
  periods.push_front(answered);
  periods.resize(std::min<std::size_t>(periods.size(), control::window_periods(options_)));
  Responses::Period sum;
  for (const Responses::Period& one : periods) sum.add(one);
  return sum;
}

double CpuControl::response_s(const ModelReading& reading, const Responses::Period& window) const {
  const std::uint64_t rest = window.on_cpu + window.dropped;
  const std::uint64_t count = reading.spills ? rest : window.on_gpu + rest;
  const double overhead_s = to_seconds(options_.overhead);
  if (count == 0) return reading.spills || reading.age_s == 0 ? 0 : reading.age_s + overhead_s;
  if (options_.percentile) {
    const observe::Histogram& times = reading.spills ? window.rest_histogram : window.histogram;
    return to_seconds(times.percentile(*options_.percentile)) + overhead_s;
  }
  return (reading.spills ? window.rest_s : window.gpu_s + window.rest_s) /
             static_cast<double>(count) +
         overhead_s;
}

void CpuControl::count(const std::string& model, const ModelReading& reading, double response_s,
                       double period_s) {
  ModelControlStatus& status = models_[model];
  const Responses::Period& answered = reading.answered;
  status.set_point_ms = 1000 * options_.set_point * reading.objective_s;
  status.response_ms = 1000 * response_s;
  status.gpu_part = answered.answered() == 0 ? 0
                                             : static_cast<double>(answered.on_gpu) /
                                                   static_cast<double>(answered.answered());
  status.on_gpu += answered.on_gpu;
  status.on_cpu += answered.on_cpu;
  if (response_s > 0) ++status.periods;
  if (response_s > reading.objective_s) ++status.violated_periods;
  status.core_seconds += status.cores_granted * period_s;
}

void CpuControl::step(const std::map<std::string, ModelReading>& readings,
                      const std::map<GpuletId, bool>& alive, Time now) {
  std::erase_if(windows_, [&](const auto& entry) { return !readings.contains(entry.first); });
  std::map<std::string, double> responses_s;
  for (const auto& [model, reading] : readings) {
    const double measured_s = response_s(reading, add_to_window(model, reading.answered));
    responses_s.emplace(model, measured_s);
    count(model, reading, measured_s, to_seconds(now - last_step_));
  }
  std::map<schedule::DeviceKey, std::map<GpuletId, control::Reading>> by_device;
  for (const auto& [id, instance] : instances_) {
    const auto seen = readings.find(instance.model);
    if (seen == readings.end()) continue;
    const auto takes = alive.find(id);
    by_device[instance.device][id] = {responses_s.at(instance.model), seen->second.objective_s,
                                      takes != alive.end() && takes->second};
  }
  for (auto& [device, node] : devices_) node.step(by_device[device], now);
  for (auto& [model, status] : models_) status.cores_requested = status.cores_granted = 0;
  for (const auto& [id, instance] : instances_) {
    const std::optional<control::Cores> cores = cores_of(id);
    if (!cores) continue;
    models_[instance.model].cores_requested += cores->requested;
    models_[instance.model].cores_granted += cores->granted;
  }
  last_step_ = now;
  next_step_ += options_.period;
  if (next_step_ <= now) next_step_ = now + options_.period;  // the step was late
}

std::vector<CpuControl::Change> CpuControl::take_changes() {
  std::vector<Change> changes;
  for (const auto& [id, instance] : instances_) {
    const std::optional<control::Cores> cores = cores_of(id);
    if (!cores || cores->granted <= 0) continue;
    const auto [sent, first] = sent_.try_emplace(id, cores->granted);
    if (!first && std::abs(sent->second - cores->granted) < kSmallestChange * sent->second)
      continue;
    sent->second = cores->granted;
    changes.push_back({id, cores->granted});
  }
  return changes;
}

std::optional<control::Cores> CpuControl::cores_of(GpuletId id) const {
  const auto instance = instances_.find(id);
  if (instance == instances_.end()) return std::nullopt;
  const auto& cores = devices_.at(instance->second.device).cores();
  const auto found = cores.find(id);
  return found == cores.end() ? std::nullopt : std::optional(found->second);
}

std::optional<ModelControlStatus> CpuControl::status_of(const std::string& model) const {
  const auto has_model = [&](const auto& entry) { return entry.second.model == model; };
  if (std::none_of(instances_.begin(), instances_.end(), has_model)) return std::nullopt;
  return models_.at(model);
}

std::vector<NodeControlStatus> CpuControl::nodes() const {
  std::vector<NodeControlStatus> nodes;
  for (const auto& [device, node] : devices_) {
    NodeControlStatus& one = nodes.emplace_back();
    one.key = device;
    one.cores = node.node_cores();
    for (const auto& [id, cores] : node.cores()) {
      one.cores_requested += cores.requested;
      one.cores_granted += cores.granted;
    }
    one.contention = node.contention();
  }
  return nodes;
}

// ---- InstanceController

void InstanceController::follow_routes(Time now, FrontendEffects& effects) {
  std::vector<ControlledInstance> instances;
  for (const auto& [id, planned] : deployment_.in_force().serving()) {
    if (planned.service != schedule::Service::controlled) continue;
    const DeviceOffer* const offer = fleet_.backends().offer_of(planned.device);
    if (offer == nullptr || !schedule::is_cpu(offer->device)) continue;
    const std::string& model = planned.assignments.front().model;
    ControlledInstance& one = instances.emplace_back();
    one.id = id;
    one.model = model;
    one.device = planned.device;
    one.device_cores = offer->device.cores;
    const profile::ModelProfile* const measured = fleet_.profile_of(planned.device, model);
    if (measured != nullptr) one.plant = measured->controller;
  }
  control_.set(instances, now);
  send_changes(effects);
  // The dispatcher has the durations of the plan again, which are those on the whole device.
  for (const auto& [id, one] : control_.instances()) {
    const std::optional<control::Cores> cores = control_.cores_of(id);
    if (cores && cores->granted > 0) expect(one, cores->granted);
  }
}

void InstanceController::expect(const ControlledInstance& instance, double cores) {
  const profile::ModelProfile* const measured = fleet_.profile_of(instance.device, instance.model);
  if (measured == nullptr) return;
  const double percent = 100 * cores / instance.device_cores;
  if (const auto expected_ms = measured->latency.latency_under_quota_ms(1, percent))
    dispatch_.set_expected(instance.id, from_ms(*expected_ms));
}

void InstanceController::send_changes(FrontendEffects& effects) {
  for (const CpuControl::Change& change : control_.take_changes()) {
    const ControlledInstance& one = control_.instances().at(change.id);
    const GpuletRecord* const gpulet = fleet_.backends().find(change.id);
    if (gpulet == nullptr) continue;
    const BackendCommand command =
        SetCores{change.id, change.cores, fleet_.backends().term_for(gpulet->backend)};
    effects.emplace_back(SendToBackend{gpulet->backend, command});
    expect(one, change.cores);
  }
}

void InstanceController::step_if_due(Time now, FrontendEffects& effects) {
  if (now < control_.next_step()) return;
  std::map<std::string, ModelReading> readings;
  std::map<GpuletId, bool> alive;
  for (const auto& [id, instance] : control_.instances()) {
    const GpuletRecord* const gpulet = fleet_.backends().find(id);
    alive[id] = gpulet != nullptr && gpulet->state == GpuletState::ready;
    const NamedModel* const known = models_.find(instance.model);
    if (known == nullptr || readings.contains(instance.model)) continue;
    ModelReading& reading = readings[instance.model];
    const InstanceDispatch::Reading served = dispatch_.read(known->current.index, now);
    reading.answered = served.answered;
    reading.age_s = to_seconds(served.age);
    reading.objective_s = models_.served(*known).slo_ms / 1000;
    reading.spills = served.spills;
  }
  control_.step(readings, alive, now);
  send_changes(effects);
}

}  // namespace gpulet::serve
