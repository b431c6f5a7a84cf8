#include "serve/instance_control.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/schedule/policy.h"

namespace gpulet::serve {

void InstanceController::follow_routes(Time now, FrontendEffects& effects) {
  std::vector<ControlledInstance> instances;
  for (const auto& [id, planned] : core_.deployment.serving()) {
    if (planned.service != schedule::Service::controlled) continue;
    const DeviceOffer* const offer = core_.backends.offer_of(planned.device);
    if (offer == nullptr || !schedule::is_cpu(offer->device)) continue;
    const std::string& model = planned.assignments.front().model;
    ControlledInstance& one = instances.emplace_back();
    one.id = id;
    one.model = model;
    one.device = planned.device;
    one.device_cores = offer->device.cores;
    const profile::ModelProfile* const measured = core_.profiles.find(offer, model);
    if (measured != nullptr) one.plant = measured->controller;
  }
  control_.set(instances, now);
  send_changes(effects);
}

void InstanceController::send_changes(FrontendEffects& effects) {
  for (const CoreControl::Change& change : control_.take_changes()) {
    const ControlledInstance& one = control_.instances().at(change.id);
    const GpuletRecord* const gpulet = core_.backends.find(change.id);
    if (gpulet == nullptr) continue;
    const BackendCommand command = SetCores{change.id, change.cores};
    effects.emplace_back(SendToBackend{gpulet->backend, command});
    const profile::ModelProfile* const measured =
        core_.profiles.find(core_.backends.offer_of(one.device), one.model);
    if (measured == nullptr) continue;
    const double percent = 100 * change.cores / one.device_cores;
    if (const auto expected_ms = measured->latency.latency_under_quota_ms(1, percent))
      core_.dispatcher.set_expected(change.id, from_ms(*expected_ms));
  }
}

void InstanceController::step_if_due(Time now, FrontendEffects& effects) {
  if (now < control_.next_step()) return;
  std::map<std::string, ModelReading> readings;
  std::map<GpuletId, bool> alive;
  for (const auto& [id, instance] : control_.instances()) {
    const GpuletRecord* const gpulet = core_.backends.find(id);
    alive[id] = gpulet != nullptr && gpulet->state == GpuletState::ready;
    const NamedModel* const known = core_.models.find(instance.model);
    if (known == nullptr || readings.contains(instance.model)) continue;
    const ModelIndex index = known->current.index;
    ModelReading& reading = readings[instance.model];
    reading.answered = core_.dispatcher.take_period(index);
    if (reading.answered.answered() == 0)
      reading.age_s = to_seconds(core_.dispatcher.mean_age(index, now));
    reading.objective_s = core_.dispatcher.models()[index].slo_ms / 1000;
    reading.spills = !core_.dispatcher.only_instances(index);
  }
  control_.step(readings, alive, now);
  send_changes(effects);
}

}  // namespace gpulet::serve
