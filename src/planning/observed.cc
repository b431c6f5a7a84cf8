#include "planning/observed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/text.h"
#include "gpulet/schedule/check.h"

namespace gpulet::planning {

namespace {

// Devices of equal slowness share a type, up to this step.
constexpr double kStep = 0.05;

// Gives slow devices types of their own, with the profile, the interference and the corrections of
// their type; the corrections are multiplied by the slowness.
void separate_slow_devices(const SlowDevices& slow, schedule::Cluster& cluster,
                           profile::ProfileSet& profiles, profile::InterferenceSet& interference,
                           profile::Corrections& corrections) {
  for (schedule::Device& device : cluster.devices) {
    const auto found = slow.find(device.key);
    const auto profile = profiles.find(device.type);
    if (found == slow.end() || profile == profiles.end()) continue;
    const double slowness = std::ceil(found->second / kStep - 1e-9) * kStep;
    const std::string type = fmt::format("{}, {:.2f} times slower", device.type, slowness);
    if (!profiles.contains(type)) {
      auto& of_type = corrections[type];
      for (const auto& [name, measured] : profile->second.models) {
        profile::ModelCorrection scaled;
        if (const auto usual = corrections.find(device.type); usual != corrections.end()) {
          const auto of_model = usual->second.find(name);
          if (of_model != usual->second.end()) scaled = of_model->second;
        }
        scaled.factor *= slowness;
        for (auto& [size, factor] : scaled.at_size) factor *= slowness;
        of_type.emplace(name, std::move(scaled));
      }
      const auto neighbours = interference.find(device.type);
      if (neighbours != interference.end()) interference.emplace(type, neighbours->second);
      profiles.emplace(type, profile->second);
    }
    device.type = type;
  }
}

// A model is never refused because of its correction: it stays below the factor at which no batch
// would meet the objective.
void limit_corrections(const PlanRequest& request, const profile::ProfileSet& profiles,
                       profile::Corrections& corrections) {
  // Of half the objective; the rest is for what a plan adds to the latency.
  constexpr double kUsable = 0.8;
  for (auto& [type, models] : corrections) {
    const auto profile = profiles.find(type);
    if (profile == profiles.end()) continue;
    for (const schedule::ModelDemand& demand : request.demands) {
      const auto corrected = models.find(demand.name);
      const profile::ModelProfile* const measured = profile->second.find(demand.name);
      if (corrected == models.end() || measured == nullptr) continue;
      double least_ms = std::numeric_limits<double>::infinity();
      for (const profile::LatencySample& sample : measured->latency.samples())
        least_ms = std::min(least_ms, sample.latency_ms);
      const double most = std::max(
          1.0, kUsable * demand.slo_ms / 2 /
                   (least_ms * schedule::margin_of(request.options.margin, measured->latency)));
      profile::ModelCorrection& correction = corrected->second;
      correction.factor = std::min(correction.factor, most);
      for (auto& [size, factor] : correction.at_size) factor = std::min(factor, most);
    }
  }
}

// Devices of nodes on which models keep failing get a type of their own, which has no profile of
// these models.
void separate_failing(const std::set<std::pair<std::string, std::string>>& not_on,
                      schedule::Cluster& cluster, profile::ProfileSet& profiles,
                      profile::InterferenceSet& interference, profile::Corrections& corrections) {
  std::map<std::string, std::vector<std::string>> of_node;
  for (const auto& [model, node] : not_on) of_node[node].push_back(model);
  for (schedule::Device& device : cluster.devices) {
    const auto failing = of_node.find(device.key.node);
    const auto profile = profiles.find(device.type);
    if (failing == of_node.end() || profile == profiles.end()) continue;
    const std::string type = device.type + ", without " + joined(failing->second);
    if (!profiles.contains(type)) {
      profile::Profile without = profile->second;
      for (const std::string& model : failing->second) without.models.erase(model);
      std::erase_if(without.pairs, [&failing](const profile::PairSample& pair) {
        const std::vector<std::string>& models = failing->second;
        const auto is_one = [&models](const std::string& name) {
          return std::find(models.begin(), models.end(), name) != models.end();
        };
        return is_one(pair.model) || is_one(pair.other_model);
      });
      if (const auto usual = corrections.find(device.type); usual != corrections.end())
        corrections.emplace(type, usual->second);
      if (const auto known = interference.find(device.type); known != interference.end())
        interference.emplace(type, known->second);
      profiles.emplace(type, std::move(without));
    }
    device.type = type;
  }
}

}  // namespace

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

std::optional<Observed> observed(const PlanRequest& request) {
  const bool has_corrections = request.corrections != nullptr && !request.corrections->empty();
  if (!has_corrections && request.slow_devices.empty() && request.not_on.empty())
    return std::nullopt;
  Observed all{request.cluster, *request.profiles, {}};
  if (request.interference != nullptr) all.interference = *request.interference;
  profile::Corrections corrections;
  if (has_corrections) corrections = *request.corrections;
  separate_slow_devices(request.slow_devices, all.cluster, all.profiles, all.interference,
                        corrections);
  separate_failing(request.not_on, all.cluster, all.profiles, all.interference, corrections);
  limit_corrections(request, all.profiles, corrections);
  all.profiles = profile::corrected(all.profiles, corrections);
  return all;
}

}  // namespace gpulet::planning
