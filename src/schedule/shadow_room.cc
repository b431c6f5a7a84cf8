#include "gpulet/schedule/shadow_room.h"

#include <algorithm>
#include <map>
#include <string>

namespace gpulet::schedule {
namespace {

double memory_mb(const profile::Profile& profile, const std::string& model) {
  const profile::ModelProfile* const measured = profile.find(model);
  return measured == nullptr ? 0 : measured->memory_mb.value_or(0);
}

void add_devices_without_memory(const std::vector<RunningGpulet>& there, const Plan& plan,
                                const Steps& steps, const Cluster& cluster,
                                const profile::ProfileSet& profiles,
                                std::set<DeviceKey>& without_room) {
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
  for (const Device& device : cluster.devices) {
    const auto created = created_mb.find(device.key);
    const auto present = there_mb.find(device.key);
    if (created == created_mb.end() || present == there_mb.end()) continue;
    if (created->second + present->second > device.memory_mb) without_room.insert(device.key);
  }
}

// Whether the device can have one more gpulet in that instance beside those, which are all in
// instances of it.
bool has_room(const Device& device, const partition::MigInstance& wanted,
              const std::vector<partition::MigInstance>& others) {
  const auto inside = std::count(others.begin(), others.end(), wanted);
  if (inside >= static_cast<std::ptrdiff_t>(device.processes_per_instance)) return false;
  return std::all_of(others.begin(), others.end(), [&](const partition::MigInstance& other) {
    return other == wanted || device.mig->compatible(other, wanted);
  });
}

void add_devices_without_instances(const std::vector<RunningGpulet>& there, const Plan& plan,
                                   const Steps& steps, const Cluster& cluster,
                                   std::set<DeviceKey>& without_room) {
  std::map<DeviceKey, std::vector<partition::MigInstance>> used;
  for (const RunningGpulet& gpulet : there) {
    if (gpulet.instance) used[gpulet.device].push_back(*gpulet.instance);
  }
  for (const std::size_t index : steps.create) {
    const PlannedGpulet& planned = plan.gpulets[index];
    const auto device =
        std::find_if(cluster.devices.begin(), cluster.devices.end(),
                     [&planned](const Device& one) { return one.key == planned.device; });
    if (!planned.instance || device == cluster.devices.end() || !device->mig) continue;
    auto& others = used[planned.device];
    if (!has_room(*device, *planned.instance, others)) without_room.insert(planned.device);
    others.push_back(*planned.instance);
  }
}

}  // namespace

std::set<DeviceKey> devices_without_shadow_room(const std::vector<RunningGpulet>& there,
                                                const Plan& plan, const Steps& steps,
                                                const Cluster& cluster,
                                                const profile::ProfileSet& profiles) {
  std::set<DeviceKey> without_room;
  add_devices_without_memory(there, plan, steps, cluster, profiles, without_room);
  add_devices_without_instances(there, plan, steps, cluster, without_room);
  return without_room;
}

}  // namespace gpulet::schedule
