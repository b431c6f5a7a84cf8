#include "gpulet/learn/placement_task.h"

#include <algorithm>
#include <utility>

namespace gpulet::learn {
namespace {

using schedule::Device;
using schedule::ModelDemand;
using schedule::PlanInput;

Status invalid(std::string message) { return {StatusCode::invalid, std::move(message)}; }

std::string name_of(const Device& device) {
  return "device " + device.key.node + "/" + std::to_string(device.key.device);
}

}  // namespace

double least_work_ms(const PlanInput& input, const std::string& model) {
  double least = 0;
  for (const auto& device : input.cluster.devices) {
    const profile::ModelProfile* const measured = input.profiles->at(device.type).find(model);
    if (measured == nullptr || device.sizes.empty()) continue;
    const auto latency = measured->latency.latency_ms(1, device.sizes.back());
    if (latency && (least == 0 || *latency < least)) least = *latency;
  }
  return least;
}

std::uint32_t PlacementTask::places() const {
  std::size_t sizes = 0;
  for (const Device& device : devices) sizes += device.sizes.size();
  return static_cast<std::uint32_t>(1 + sizes);
}

Result<PlacementTask> task_of(const PlanInput& input) {
  PlacementTask task;
  task.devices = input.cluster.devices;
  if (task.devices.empty())
    return invalid("a placement needs devices; the cluster has none: name some in its file");
  for (const Device& device : task.devices) {
    if (device.mig) {
      return invalid(name_of(device) +
                     " is divided by MIG, whose layouts are for the mig- policies and cover: take "
                     "devices whose gpulets have any share");
    }
  }
  std::vector<std::pair<double, TaskModel>> by_work;
  for (const ModelDemand& demand : input.demands) {
    if (!(demand.rate > 0)) {
      return invalid("model '" + demand.name +
                     "' has no rate: the demand tells the highest one that the policy will see");
    }
    const double work_ms = least_work_ms(input, demand.name);
    if (work_ms == 0) {
      return invalid("model '" + demand.name +
                     "' was measured on none of the cluster's devices: measure it with gpulet "
                     "profile run, or leave it out of the demand");
    }
    by_work.emplace_back(demand.rate * work_ms,
                         TaskModel{demand.name, demand.slo_ms, demand.max_batch, demand.rate});
  }
  std::sort(by_work.begin(), by_work.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second.name < b.second.name;
  });
  for (auto& [work, model] : by_work) task.models.push_back(std::move(model));
  return task;
}

Status fits(const PlacementTask& task, const PlanInput& input) {
  for (const Device& device : input.cluster.devices) {
    const auto known = std::find_if(task.devices.begin(), task.devices.end(),
                                    [&](const Device& one) { return one.key == device.key; });
    if (known == task.devices.end())
      return invalid(name_of(device) + " was not there when the policy was trained: train it anew");
    Device as_known = device;
    as_known.cores = known->cores;  // how fast they are, its profile says
    if (*known != as_known) {
      return invalid(name_of(device) +
                     " has another type, other sizes, partitions or memory than when the policy "
                     "was trained: train it anew");
    }
  }
  for (const ModelDemand& demand : input.demands) {
    const auto known = std::find_if(task.models.begin(), task.models.end(),
                                    [&](const TaskModel& one) { return one.name == demand.name; });
    if (known == task.models.end())
      return invalid("the policy was not trained for model '" + demand.name + "': train it anew");
    if (known->slo_ms != demand.slo_ms || known->max_batch != demand.max_batch) {
      return invalid("model '" + demand.name +
                     "' has another objective or largest batch than when the policy was trained: "
                     "train it anew");
    }
  }
  return {};
}

}  // namespace gpulet::learn
