#include "gpulet/schedule/reconcile.h"

#include <algorithm>
#include <tuple>

namespace gpulet::schedule {
namespace {

std::vector<RunningModel> planned_models(const PlannedGpulet& planned) {
  std::vector<RunningModel> models;
  models.reserve(planned.assignments.size());
  for (const Assignment& assignment : planned.assignments) {
    models.push_back({assignment.model, assignment.batch});
  }
  std::sort(models.begin(), models.end());
  return models;
}

bool has_models(const RunningGpulet& running, const std::vector<RunningModel>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const RunningModel& model) {
    return std::any_of(running.models.begin(), running.models.end(),
                       [&](const RunningModel& loaded) {
                         return loaded.name == model.name && loaded.max_batch >= model.max_batch;
                       });
  });
}

// The distance of a running gpulet to a planned one that it can serve: unused models first, then
// unused prepared batches. Zero for equal ones.
using Distance = std::tuple<std::size_t, std::uint64_t>;

Distance distance(const RunningGpulet& running, const std::vector<RunningModel>& wanted) {
  std::uint64_t batches = 0;
  for (const RunningModel& loaded : running.models) batches += loaded.max_batch;
  for (const RunningModel& model : wanted) batches -= model.max_batch;
  return {running.models.size() - wanted.size(), batches};
}

struct Pair {
  Distance distance;
  std::size_t planned = 0;
  const RunningGpulet* running = nullptr;
};

// Every pair that can be kept, the nearest first; ties by the plan's order, then by id.
std::vector<Pair> pairs_by_distance(const std::vector<RunningGpulet>& running, const Plan& plan) {
  using Location = std::tuple<DeviceKey, Share, std::optional<partition::MigInstance>, bool>;
  std::map<Location, std::vector<const RunningGpulet*>> by_location;
  for (const RunningGpulet& gpulet : running)
    by_location[{gpulet.device, gpulet.size, gpulet.instance, gpulet.controlled}].push_back(
        &gpulet);
  std::vector<Pair> pairs;
  for (std::size_t index = 0; index < plan.gpulets.size(); ++index) {
    const PlannedGpulet& planned = plan.gpulets[index];
    const auto here = by_location.find(
        {planned.device, planned.size, planned.instance, planned.service == Service::controlled});
    if (here == by_location.end()) continue;
    const std::vector<RunningModel> wanted = planned_models(planned);
    for (const RunningGpulet* candidate : here->second) {
      if (has_models(*candidate, wanted))
        pairs.push_back({distance(*candidate, wanted), index, candidate});
    }
  }
  std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
    return std::tie(a.distance, a.planned, a.running->id) <
           std::tie(b.distance, b.planned, b.running->id);
  });
  return pairs;
}

}  // namespace

Steps reconcile(const std::vector<RunningGpulet>& running, const Plan& plan) {
  Steps steps;
  std::vector<std::optional<GpuletId>> kept_for(plan.gpulets.size());
  std::vector<GpuletId> kept;
  for (const Pair& pair : pairs_by_distance(running, plan)) {
    if (kept_for[pair.planned]) continue;
    if (std::find(kept.begin(), kept.end(), pair.running->id) != kept.end()) continue;
    kept_for[pair.planned] = pair.running->id;
    kept.push_back(pair.running->id);
  }
  for (std::size_t index = 0; index < plan.gpulets.size(); ++index) {
    if (kept_for[index]) {
      steps.keep.push_back({*kept_for[index], index});
    } else {
      steps.create.push_back(index);
    }
  }
  std::sort(kept.begin(), kept.end());
  for (const RunningGpulet& gpulet : running) {
    if (!std::binary_search(kept.begin(), kept.end(), gpulet.id)) steps.retire.push_back(gpulet.id);
  }
  std::sort(steps.retire.begin(), steps.retire.end());
  return steps;
}

namespace {

double model_mb(const profile::Profile& profile, const std::string& model) {
  const profile::ModelProfile* const measured = profile.find(model);
  return measured == nullptr ? 0 : measured->memory_mb.value_or(0);
}

void add_devices_without_memory(const std::vector<RunningGpulet>& running, const Plan& plan,
                                const Steps& steps, const Cluster& cluster,
                                const profile::ProfileSet& profiles,
                                std::set<DeviceKey>& without_capacity) {
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
    for (const Assignment& one : planned.assignments) sum_mb += model_mb(*found->second, one.model);
  }
  std::map<DeviceKey, double> running_mb;
  for (const RunningGpulet& gpulet : running) {
    const auto found = profile_of.find(gpulet.device);
    if (found == profile_of.end()) continue;
    for (const RunningModel& model : gpulet.models)
      running_mb[gpulet.device] += model_mb(*found->second, model.name);
  }
  for (const Device& device : cluster.devices) {
    const auto created = created_mb.find(device.key);
    const auto present = running_mb.find(device.key);
    if (created == created_mb.end() || present == running_mb.end()) continue;
    if (created->second + present->second > device.memory_mb) without_capacity.insert(device.key);
  }
}

// Whether the device can have another gpulet in the instance `wanted`, next to gpulets in `others`.
bool instance_fits(const Device& device, const partition::MigInstance& wanted,
                   const std::vector<partition::MigInstance>& others) {
  const auto inside = std::count(others.begin(), others.end(), wanted);
  if (inside >= static_cast<std::ptrdiff_t>(device.processes_per_instance)) return false;
  return std::all_of(others.begin(), others.end(), [&](const partition::MigInstance& other) {
    return other == wanted || device.mig->compatible(other, wanted);
  });
}

void add_devices_without_instances(const std::vector<RunningGpulet>& running, const Plan& plan,
                                   const Steps& steps, const Cluster& cluster,
                                   std::set<DeviceKey>& without_capacity) {
  std::map<DeviceKey, std::vector<partition::MigInstance>> used;
  for (const RunningGpulet& gpulet : running) {
    if (gpulet.instance) used[gpulet.device].push_back(*gpulet.instance);
  }
  for (const std::size_t index : steps.create) {
    const PlannedGpulet& planned = plan.gpulets[index];
    const auto device =
        std::find_if(cluster.devices.begin(), cluster.devices.end(),
                     [&planned](const Device& one) { return one.key == planned.device; });
    if (!planned.instance || device == cluster.devices.end() || !device->mig) continue;
    auto& others = used[planned.device];
    if (!instance_fits(*device, *planned.instance, others)) without_capacity.insert(planned.device);
    others.push_back(*planned.instance);
  }
}

}  // namespace

std::set<DeviceKey> devices_without_rollout_capacity(const std::vector<RunningGpulet>& running,
                                                     const Plan& plan, const Steps& steps,
                                                     const Cluster& cluster,
                                                     const profile::ProfileSet& profiles) {
  std::set<DeviceKey> without_capacity;
  add_devices_without_memory(running, plan, steps, cluster, profiles, without_capacity);
  add_devices_without_instances(running, plan, steps, cluster, without_capacity);
  return without_capacity;
}

}  // namespace gpulet::schedule
