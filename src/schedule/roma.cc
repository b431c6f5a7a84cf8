// The policy roma (ROMA, section 2.2): one instance of all models per GPU, one instance per model
// and CPU. Pure.
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "gpulet/schedule/policy.h"
#include "schedule/plan_output.h"
#include "schedule/policies.h"

namespace gpulet::schedule {
namespace {

std::vector<const ModelDemand*> demanded_by_name(const PlanInput& input) {
  std::vector<const ModelDemand*> demanded;
  for (const ModelDemand& demand : input.demands) {
    if (demand.rate > 0) demanded.push_back(&demand);
  }
  std::sort(demanded.begin(), demanded.end(),
            [](const ModelDemand* a, const ModelDemand* b) { return a->name < b->name; });
  return demanded;
}

// The models that the device's profile knows and its memory holds, one request each at a time.
std::vector<Assignment> assignments_on(const Device& device, const PlanInput& input) {
  std::vector<Assignment> held;
  const profile::Profile& profile = input.profiles->find(device.type)->second;
  double memory_mb = 0;
  for (const ModelDemand* demand : demanded_by_name(input)) {
    const profile::ModelProfile* const model = profile.find(demand->name);
    if (model == nullptr) continue;
    const std::optional<double> alone_ms = model->latency.latency_ms(1, kWholeDevice);
    if (!alone_ms) continue;
    memory_mb += model->memory_mb.value_or(0);
    if (device.memory_mb > 0 && memory_mb > device.memory_mb) {
      memory_mb -= model->memory_mb.value_or(0);
      continue;
    }
    const double latency_ms = *alone_ms * margin_of(input.options.margin, model->latency);
    held.push_back({demand->name, 0, 1, latency_ms, 1, demand->slo_ms});
  }
  return held;
}

// Removes the gpulets of devices beyond the limit.
void limit_devices(std::optional<std::uint32_t> max_devices, Plan& plan) {
  if (!max_devices) return;
  std::set<DeviceKey> kept;
  std::erase_if(plan.gpulets, [&](const PlannedGpulet& gpulet) {
    if (kept.size() < *max_devices) kept.insert(gpulet.device);
    return !kept.contains(gpulet.device);
  });
}

// Limits the models of a gpulet; keeps those first that no device has yet.
void limit_models(std::set<std::string>& placed, std::vector<Assignment>& held) {
  if (held.size() > kMostModelsOfGpulet) {
    std::stable_partition(held.begin(), held.end(),
                          [&placed](const auto& one) { return !placed.contains(one.model); });
    held.resize(kMostModelsOfGpulet);
    std::sort(held.begin(), held.end(),
              [](const auto& a, const auto& b) { return a.model < b.model; });
  }
  for (const Assignment& one : held) placed.insert(one.model);
}

}  // namespace

void add_cpu_instances(const PlanInput& input, Plan& plan) {
  std::map<std::string, std::size_t> of_node;
  for (const PlannedGpulet& gpulet : plan.gpulets) ++of_node[gpulet.device.node];
  for (const Device& device : input.cluster.devices) {
    if (!is_cpu(device)) continue;
    for (Assignment& one : assignments_on(device, input)) {
      if (of_node[device.key.node]++ >= kMostGpuletsOfNode) break;
      PlannedGpulet& instance = plan.gpulets.emplace_back();
      instance.device = device.key;
      instance.size = kControlledShare;
      instance.assignments.push_back(std::move(one));
      instance.service = Service::controlled;
    }
  }
  std::stable_sort(plan.gpulets.begin(), plan.gpulets.end(),
                   [](const auto& a, const auto& b) { return a.device < b.device; });
}

Cluster without_cpus(const Cluster& cluster) {
  Cluster others;
  std::copy_if(cluster.devices.begin(), cluster.devices.end(), std::back_inserter(others.devices),
               [](const Device& device) { return !is_cpu(device); });
  return others;
}

Plan plan_roma(const PlanInput& input) {
  Plan plan;
  std::set<std::string> placed;
  for (const Device& device : input.cluster.devices) {
    if (is_cpu(device) || device.mig) continue;
    std::vector<Assignment> held = assignments_on(device, input);
    if (held.empty()) continue;
    limit_models(placed, held);
    PlannedGpulet& instance = plan.gpulets.emplace_back();
    instance.device = device.key;
    instance.size = kWholeDevice;
    instance.assignments = std::move(held);
    instance.service = Service::by_need;
  }
  add_cpu_instances(input, plan);
  limit_devices(input.options.max_devices, plan);
  for (const ModelDemand* demand : demanded_by_name(input)) {
    if (serves(plan, demand->name)) continue;
    plan.unserved.push_back(
        {demand->name, demand->rate,
         "no device in use has a latency of batch 1 of it and the memory for it: "
         "measure it with gpulet profile run"});
  }
  return plan;
}

}  // namespace gpulet::schedule
