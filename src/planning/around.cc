#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/planning/pipeline.h"

namespace gpulet::planning {
namespace {

using schedule::PlannedGpulet;

// The kept gpulets' rates are scaled by `factor`, by model: below 1 where the demand has decreased.
struct Cover {
  std::map<std::string, double> factor;
  std::set<std::string> by_instances;  // these promise no rate
};

Cover cover_of(const std::vector<PlannedGpulet>& kept,
               const std::vector<schedule::ModelDemand>& demands,
               std::vector<schedule::ModelDemand>& rest) {
  Cover cover;
  std::map<std::string, double> kept_rate;
  for (const PlannedGpulet& gpulet : kept) {
    for (const schedule::Assignment& one : gpulet.assignments) {
      kept_rate[one.model] += one.rate;
      if (gpulet.service != schedule::Service::rounds) cover.by_instances.insert(one.model);
    }
  }
  for (const schedule::ModelDemand& demand : demands) {
    const double covered = kept_rate[demand.name];
    if (covered >= demand.rate * (1 - schedule::kNegligiblePart)) {
      cover.factor[demand.name] = covered > 0 ? demand.rate / covered : 1;
      continue;
    }
    cover.factor[demand.name] = 1;
    rest.push_back(demand);
    rest.back().rate -= covered;
  }
  return cover;
}

schedule::Plan without_devices(const std::vector<schedule::ModelDemand>& rest,
                               const std::set<std::string>& by_instances) {
  schedule::Plan plan;
  for (const schedule::ModelDemand& demand : rest) {
    if (by_instances.contains(demand.name)) continue;
    plan.unserved.push_back({demand.name, demand.rate,
                             "no device takes new gpulets: the last ones failed on every device; "
                             "the status says why"});
  }
  std::sort(plan.unserved.begin(), plan.unserved.end(),
            [](const auto& a, const auto& b) { return a.model < b.model; });
  return plan;
}

}  // namespace

schedule::Plan plan_around(const schedule::PlanInput& input,
                           const std::set<schedule::DeviceKey>& closed,
                           std::vector<PlannedGpulet> kept,
                           const std::function<schedule::Plan(const schedule::PlanInput&)>& plan) {
  schedule::PlanInput open = input;
  std::erase_if(open.cluster.devices,
                [&closed](const schedule::Device& device) { return closed.contains(device.key); });
  open.demands.clear();
  const Cover cover = cover_of(kept, input.demands, open.demands);
  std::optional<schedule::Plan> current;
  if (input.current != nullptr) {
    current = *input.current;
    std::erase_if(current->gpulets,
                  [&closed](const PlannedGpulet& one) { return closed.contains(one.device); });
    open.current = &*current;
  }
  std::set<schedule::DeviceKey> in_use;
  for (const PlannedGpulet& gpulet : kept) in_use.insert(gpulet.device);
  if (open.options.max_devices) {
    const auto used = static_cast<std::uint32_t>(in_use.size());
    *open.options.max_devices -= std::min(used, *open.options.max_devices);
  }
  schedule::Plan whole =
      open.cluster.devices.empty() ? without_devices(open.demands, cover.by_instances) : plan(open);
  for (PlannedGpulet& gpulet : kept) {
    for (schedule::Assignment& one : gpulet.assignments) one.rate *= cover.factor.at(one.model);
    whole.gpulets.push_back(std::move(gpulet));
  }
  std::stable_sort(whole.gpulets.begin(), whole.gpulets.end(), schedule::in_plan_order);
  whole.lower_bound.reset();
  return whole;
}

}  // namespace gpulet::planning
