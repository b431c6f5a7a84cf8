#include "gpulet/schedule/stages.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace gpulet::schedule {
namespace {

// The gpulets of one instance: processes of the same models.
using Processes = std::vector<PlannedGpulet>;
using Place = std::pair<DeviceKey, partition::MigInstance>;
using Places = std::map<Place, Processes>;

Places places_of(const Plan& plan) {
  Places places;
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    if (gpulet.instance) places[{gpulet.device, *gpulet.instance}].push_back(gpulet);
  }
  return places;
}

class Staging {
 public:
  Staging(const Plan& from, const Plan& to, const Cluster& cluster)
      : to_(to), from_places_(places_of(from)), to_places_(places_of(to)) {
    for (const Device& device : cluster.devices) {
      if (!device.mig) continue;
      number_of_[device.key] = static_cast<std::uint32_t>(keys_.size());
      keys_.push_back(device.key);
      staged_.task.devices.push_back({device.key.node, *device.mig, device.key.device});
    }
    number_services();
  }

  Result<StagedPlan> run() {
    if (from_places_.empty() && to_places_.empty()) {  // nothing in an instance
      staged_.plans = {to_};
      return std::move(staged_);
    }
    if (Status status = add_holdings(from_places_, &staged_.task.from); !status.ok()) return status;
    if (Status status = add_holdings(to_places_, &staged_.task.to); !status.ok()) return status;
    auto planned = mig::plan_transition(staged_.task);
    if (!planned.ok()) return planned.status();
    staged_.transition = std::move(planned).value();
    const std::vector<mig::Stage>& stages = staged_.transition.stages;
    for (std::size_t at = 0; at + 1 < stages.size(); ++at)
      staged_.plans.push_back(plan_of(stages[at]));
    staged_.plans.push_back(to_);
    return std::move(staged_);
  }

 private:
  void number_services() {
    for (const Places* places : {&from_places_, &to_places_}) {
      for (const auto& [place, processes] : *places) {
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

  Status add_holdings(const Places& places, std::vector<mig::Holding>* holdings) const {
    for (const auto& [place, processes] : places) {
      const auto device = number_of_.find(place.first);
      if (device == number_of_.end()) {
        return {StatusCode::invalid, "device " + place.first.node + "/" +
                                         std::to_string(place.first.device) +
                                         ": the cluster has none there that MIG divides"};
      }
      std::map<std::uint32_t, double> rates;
      for (const PlannedGpulet& gpulet : processes) {
        for (const Assignment& one : gpulet.assignments)
          rates[service_of_.at(one.model)] += one.rate;
      }
      mig::Holding& holding = holdings->emplace_back();
      holding.device = device->second;
      holding.instance = place.second;
      for (const auto& [service, rate] : rates) holding.parts.push_back({service, rate});
    }
    return {};
  }

  [[nodiscard]] std::set<std::string> models_of(const mig::Holding& holding) const {
    std::set<std::string> models;
    for (const mig::Part& part : holding.parts) models.insert(staged_.task.services[part.service]);
    return models;
  }

  static bool holds(const Processes& processes, const std::set<std::string>& models) {
    std::set<std::string> held;
    for (const Assignment& one : processes.front().assignments) held.insert(one.model);
    return held == models;
  }

  // The gpulets of a holding: those of its place in either plan, or, where it only stands in for
  // another, that other's.
  [[nodiscard]] Processes processes_of(const mig::Holding& holding) const {
    const std::set<std::string> models = models_of(holding);
    const Place place{keys_[holding.device], holding.instance};
    for (const Places* places : {&to_places_, &from_places_}) {
      const auto here = places->find(place);
      if (here != places->end() && holds(here->second, models)) return here->second;
    }
    Processes processes;
    for (const Places* places : {&from_places_, &to_places_}) {
      const auto like = std::find_if(places->begin(), places->end(), [&](const auto& entry) {
        return entry.first.second.slices == holding.instance.slices && holds(entry.second, models);
      });
      if (like == places->end()) continue;
      processes = like->second;
      break;
    }
    for (PlannedGpulet& gpulet : processes) {
      gpulet.device = place.first;
      gpulet.instance = place.second;
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
    for (const mig::Holding& holding : stage.after) {
      const Processes processes = processes_of(holding);
      plan.gpulets.insert(plan.gpulets.end(), processes.begin(), processes.end());
    }
    std::stable_sort(plan.gpulets.begin(), plan.gpulets.end(),
                     [](const PlannedGpulet& a, const PlannedGpulet& b) {
                       if (a.device != b.device) return a.device < b.device;
                       return a.size > b.size;
                     });
    return plan;
  }

  const Plan& to_;
  Places from_places_;
  Places to_places_;
  std::vector<DeviceKey> keys_;  // of the task's devices
  std::map<DeviceKey, std::uint32_t> number_of_;
  std::map<std::string, std::uint32_t> service_of_;
  StagedPlan staged_;
};

}  // namespace

Result<StagedPlan> stage_plan(const Plan& from, const Plan& to, const Cluster& cluster) {
  return Staging(from, to, cluster).run();
}

}  // namespace gpulet::schedule
