#include "gpulet/schedule/shadow_room.h"

#include <map>
#include <string>

namespace gpulet::schedule {
namespace {

double memory_mb(const profile::Profile& profile, const std::string& model) {
  const profile::ModelProfile* const measured = profile.find(model);
  return measured == nullptr ? 0 : measured->memory_mb.value_or(0);
}

}  // namespace

std::set<DeviceKey> devices_without_shadow_room(const std::vector<RunningGpulet>& there,
                                                const Plan& plan, const Steps& steps,
                                                const Cluster& cluster,
                                                const profile::ProfileSet& profiles) {
  std::map<DeviceKey, double> created_mb;
  std::map<DeviceKey, const profile::Profile*> profile_of;
  for (const Device& device : cluster.devices) {
    const auto found = profiles.find(device.type);
    if (found != profiles.end() && device.memory_mb > 0) profile_of[device.key] = &found->second;
  }
  for (const std::size_t index : steps.create) {
    const PlannedGpulet& planned = plan.gpulets[index];
    const auto found = profile_of.find(planned.device);
    if (found == profile_of.end()) continue;
    double& sum_mb = created_mb[planned.device];
    for (const Assignment& one : planned.assignments)
      sum_mb += memory_mb(*found->second, one.model);
  }
  std::map<DeviceKey, double> there_mb;
  for (const RunningGpulet& gpulet : there) {
    const auto found = profile_of.find(gpulet.device);
    if (found == profile_of.end()) continue;
    for (const LoadedModel& model : gpulet.models)
      there_mb[gpulet.device] += memory_mb(*found->second, model.name);
  }
  std::set<DeviceKey> without_room;
  for (const Device& device : cluster.devices) {
    const auto created = created_mb.find(device.key);
    const auto present = there_mb.find(device.key);
    if (created == created_mb.end() || present == there_mb.end()) continue;
    if (created->second + present->second > device.memory_mb) without_room.insert(device.key);
  }
  return without_room;
}

}  // namespace gpulet::schedule
