// FrontendCore: executables whose cores are controlled.
#include <algorithm>
#include <utility>

#include "gpulet/schedule/executables.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::serve {

void FrontendCore::set_controlled(Time now, FrontendEffects& effects) {
  std::vector<ControlledExecutable> executables;
  for (const auto& [id, planned] : serving_) {
    if (planned.service != schedule::Service::controlled) continue;
    const DeviceOffer* const offer = fleet_.offer_of(planned.device);
    if (offer == nullptr || !schedule::is_cpu(offer->device)) continue;
    const std::string& model = planned.assignments.front().model;
    ControlledExecutable& one = executables.emplace_back();
    one.id = id;
    one.model = model;
    one.device = planned.device;
    one.device_cores = offer->device.cores;
    const profile::ModelProfile* const measured = profile_of(planned.device, model);
    if (measured != nullptr) one.plant = measured->controller;
  }
  control_.set(executables, now);
  tell_cores(effects);
}

void FrontendCore::tell_cores(FrontendEffects& effects) {
  for (const CoreControl::Change& change : control_.take_changes()) {
    const ControlledExecutable& one = control_.executables().at(change.id);
    const FleetGpulet* const gpulet = fleet_.find(change.id);
    if (gpulet == nullptr) continue;
    const BackendCommand command = SetCores{change.id, change.cores};
    effects.emplace_back(TellBackend{gpulet->backend, command});
    const profile::ModelProfile* const measured = profile_of(one.device, one.model);
    if (measured == nullptr) continue;
    const double percent = 100 * change.cores / one.device_cores;
    if (const auto expected_ms = measured->latency.latency_under_quota_ms(1, percent))
      dispatcher_.set_expected(change.id, from_ms(*expected_ms));
  }
}

void FrontendCore::control_cores(Time now, FrontendEffects& effects) {
  std::map<std::string, ModelReading> readings;
  std::map<GpuletId, bool> alive;
  for (const auto& [id, executable] : control_.executables()) {
    const FleetGpulet* const gpulet = fleet_.find(id);
    alive[id] = gpulet != nullptr && gpulet->state == GpuletState::ready;
    const auto known = versions_.named().find(executable.model);
    if (known == versions_.named().end() || readings.contains(executable.model)) continue;
    const ModelIndex index = known->second.current.index;
    ModelReading& reading = readings[executable.model];
    reading.answered = dispatcher_.take_period(index);
    if (reading.answered.answered() == 0)
      reading.age_s = to_seconds(dispatcher_.mean_age(index, now));
    reading.objective_s = dispatcher_.models()[index].slo_ms / 1000;
    reading.spills = !dispatcher_.by_executables(index);
  }
  control_.step(readings, alive, now);
  tell_cores(effects);
}

}  // namespace gpulet::serve
