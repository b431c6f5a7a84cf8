#include "planning/in_force.h"

#include <map>
#include <string>
#include <utility>

#include "gpulet/schedule/check.h"

namespace gpulet::planning {

std::optional<schedule::Plan> in_force_for(const schedule::PlanInput& input) {
  if (input.current == nullptr) return std::nullopt;
  std::map<std::string, double> planned;
  for (const schedule::PlannedGpulet& gpulet : input.current->gpulets) {
    for (const schedule::Assignment& one : gpulet.assignments) planned[one.model] += one.rate;
  }
  std::map<std::string, double> factors;
  for (const schedule::ModelDemand& demand : input.demands) {
    const auto found = planned.find(demand.name);
    if (found == planned.end() || !(found->second > 0)) return std::nullopt;
    factors.emplace(demand.name, demand.rate / found->second);
  }
  schedule::Plan plan;
  for (schedule::PlannedGpulet gpulet : input.current->gpulets) {
    std::erase_if(gpulet.assignments,
                  [&factors](const auto& one) { return !factors.contains(one.model); });
    for (schedule::Assignment& one : gpulet.assignments) one.rate *= factors.at(one.model);
    if (!gpulet.assignments.empty()) plan.gpulets.push_back(std::move(gpulet));
  }
  if (!schedule::check(plan, input).empty()) return std::nullopt;
  return plan;
}

}  // namespace gpulet::planning
