#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "gpulet/schedule/mig.h"

namespace gpulet::schedule {
namespace {

// The gpulets of one instance: processes with the same models.
using Processes = std::vector<PlannedGpulet>;
using InstanceKey = std::pair<DeviceKey, partition::MigInstance>;
using Instances = std::map<InstanceKey, Processes>;

Instances instances_of(const Plan& plan) {
  Instances instances;
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    if (gpulet.instance) instances[{gpulet.device, *gpulet.instance}].push_back(gpulet);
  }
  return instances;
}

class Staging {
 public:
  Staging(const Plan& from, const Plan& to, const Cluster& cluster)
      : to_(to), from_instances_(instances_of(from)), to_instances_(instances_of(to)) {
    for (const Device& device : cluster.devices) {
      if (!device.mig) continue;
      number_of_[device.key] = static_cast<std::uint32_t>(keys_.size());
      keys_.push_back(device.key);
      staged_.task.devices.push_back({device.key.node, *device.mig, device.key.device});
    }
    number_services();
  }

  Result<StagedPlan> run() {
    if (from_instances_.empty() && to_instances_.empty()) {  // no MIG instances
      staged_.plans = {to_};
      return std::move(staged_);
    }
    if (Status status = add_serving(from_instances_, &staged_.task.from); !status.ok())
      return status;
    if (Status status = add_serving(to_instances_, &staged_.task.to); !status.ok()) return status;
    GPULET_TRY(auto planned, mig::plan_transition(staged_.task));
    staged_.transition = std::move(planned);
    const std::vector<mig::Stage>& stages = staged_.transition.stages;
    for (std::size_t at = 0; at + 1 < stages.size(); ++at)
      staged_.plans.push_back(plan_of(stages[at]));
    staged_.plans.push_back(to_);
    return std::move(staged_);
  }

 private:
  void number_services() {
    for (const Instances* instances : {&from_instances_, &to_instances_}) {
      for (const auto& [key, processes] : *instances) {
        for (const PlannedGpulet& gpulet : processes) {
          for (const Assignment& one : gpulet.assignments) service_of_.emplace(one.model, 0);
        }
      }
    }
    for (auto& [model, service] : service_of_) {
      service = static_cast<std::uint32_t>(staged_.task.services.size());
      staged_.task.services.push_back(model);
    }
  }

  Status add_serving(const Instances& instances,
                     std::vector<mig::ServingInstance>* serving_instances) const {
    for (const auto& [key, processes] : instances) {
      const auto device = number_of_.find(key.first);
      if (device == number_of_.end()) {
        return {StatusCode::invalid, fmt::format("device {}/{} is not a MIG device of the cluster",
                                                 key.first.node, key.first.device)};
      }
      std::map<std::uint32_t, double> rates;
      for (const PlannedGpulet& gpulet : processes) {
        for (const Assignment& one : gpulet.assignments)
          rates[service_of_.at(one.model)] += one.rate;
      }
      mig::ServingInstance& serving = serving_instances->emplace_back();
      serving.device = device->second;
      serving.instance = key.second;
      for (const auto& [service, rate] : rates) serving.parts.push_back({service, rate});
    }
    return {};
  }

  [[nodiscard]] std::set<std::string> models_of(const mig::ServingInstance& serving) const {
    std::set<std::string> models;
    for (const mig::ServiceRate& part : serving.parts)
      models.insert(staged_.task.services[part.service]);
    return models;
  }

  static bool holds(const Processes& processes, const std::set<std::string>& models) {
    std::set<std::string> held;
    for (const Assignment& one : processes.front().assignments) held.insert(one.model);
    return held == models;
  }

  // The gpulets of the instance in either plan, where it has more of them; for a temporary replica
  // those of the instance that it replaces.
  [[nodiscard]] Processes processes_of(const mig::ServingInstance& serving) const {
    const std::set<std::string> models = models_of(serving);
    const InstanceKey key{keys_[serving.device], serving.instance};
    Processes processes;
    for (const Instances* instances : {&to_instances_, &from_instances_}) {
      const auto here = instances->find(key);
      if (here != instances->end() && holds(here->second, models) &&
          here->second.size() > processes.size())
        processes = here->second;
    }
    if (!processes.empty()) return processes;
    for (const Instances* instances : {&from_instances_, &to_instances_}) {
      const auto like = std::find_if(instances->begin(), instances->end(), [&](const auto& entry) {
        return entry.first.second.slices == serving.instance.slices && holds(entry.second, models);
      });
      if (like == instances->end()) continue;
      processes = like->second;
      break;
    }
    for (PlannedGpulet& gpulet : processes) {
      gpulet.device = key.first;
      gpulet.instance = key.second;
    }
    return processes;
  }

  [[nodiscard]] Plan plan_of(const mig::Stage& stage) const {
    Plan plan;
    plan.policy = to_.policy;
    plan.unserved = to_.unserved;
    for (const PlannedGpulet& gpulet : to_.gpulets) {
      if (!gpulet.instance) plan.gpulets.push_back(gpulet);
    }
    for (const mig::ServingInstance& serving : stage.after) {
      const Processes processes = processes_of(serving);
      plan.gpulets.insert(plan.gpulets.end(), processes.begin(), processes.end());
    }
    std::stable_sort(plan.gpulets.begin(), plan.gpulets.end(), in_plan_order);
    return plan;
  }

  const Plan& to_;
  Instances from_instances_;
  Instances to_instances_;
  std::vector<DeviceKey> keys_;  // by device of the task
  std::map<DeviceKey, std::uint32_t> number_of_;
  std::map<std::string, std::uint32_t> service_of_;
  StagedPlan staged_;
};

}  // namespace

Result<StagedPlan> stage_plan(const Plan& from, const Plan& to, const Cluster& cluster) {
  return Staging(from, to, cluster).run();
}

}  // namespace gpulet::schedule
