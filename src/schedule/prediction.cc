#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "gpulet/schedule/explanation.h"
#include "schedule/device_chain.h"

namespace gpulet::schedule {
namespace {

std::optional<Lane> lane_of(const Assignment& assignment, Share size, std::uint32_t processes,
                            const std::optional<double>& asked_margin,
                            const profile::Profile& profile,
                            const profile::InterferenceModel* interference) {
  const profile::ModelProfile* const measured = profile.find(assignment.model);
  if (measured == nullptr || assignment.batch == 0 || !(assignment.slo_ms > 0)) return std::nullopt;
  const profile::LatencyTable& table = measured->latency_of(processes);
  const double margin = margin_of(asked_margin, table);
  Lane lane;
  lane.assignment = &assignment;
  lane.rate = assignment.rate / 1000;
  for (std::uint32_t n = 1; n <= assignment.batch; ++n) {
    const std::optional<double> alone_ms = table.latency_ms(n, size);
    if (!alone_ms) return std::nullopt;
    lane.alone_ms.push_back(*alone_ms);
    lane.expected_ms.push_back(*alone_ms * assignment.slowdown * margin);
    lane.cv.push_back(table.cv(n, size).value_or(0));
  }
  // Where times fall as a batch grows, the dispatcher still has more time for the smaller one.
  for (std::size_t n = lane.batch() - 1; n > 0; --n)
    lane.expected_ms[n - 1] = std::min(lane.expected_ms[n - 1], lane.expected_ms[n]);
  for (std::uint32_t n = 1; n < assignment.batch; n *= 2) lane.sizes.push_back(n);
  lane.sizes.push_back(assignment.batch);
  if (interference == nullptr) return lane;
  for (const std::uint32_t n : lane.sizes)
    lane.traits.push_back(interference->traits(assignment.model, n, size));
  return lane;
}

using OfDevice = std::vector<std::vector<std::optional<double>>>;

// Parallel to the gpulets, all of one device.
OfDevice predict_device(const std::vector<const PlannedGpulet*>& gpulets, const Device& device,
                        const PlanInput& input) {
  OfDevice predicted;
  for (const PlannedGpulet* gpulet : gpulets) predicted.emplace_back(gpulet->assignments.size());
  const auto profile = input.profiles->find(device.type);
  if (profile == input.profiles->end()) return predicted;
  const profile::InterferenceModel* interference = nullptr;
  if (input.interference != nullptr && !device.mig) {  // MIG isolates instances
    const auto known = input.interference->find(device.type);
    if (known != input.interference->end()) interference = &known->second;
  }
  std::vector<LaneGroup> groups;
  for (std::size_t at = 0; at < gpulets.size(); ++at) {
    const PlannedGpulet& gpulet = *gpulets[at];
    if (gpulet.service != Service::rounds) continue;
    const auto processes = std::count_if(gpulets.begin(), gpulets.end(), [&](const auto* other) {
      return other == &gpulet || (gpulet.instance && other->instance == gpulet.instance);
    });
    const double turns = profile->second.knows_processes() ? static_cast<double>(processes) : 1;
    LaneGroup group{at, gpulet.duty_cycle_ms / turns, turns, {}};
    for (const Assignment& assignment : gpulet.assignments) {
      if (!(assignment.rate > 0)) continue;
      auto lane = lane_of(assignment, gpulet.size, static_cast<std::uint32_t>(processes),
                          input.options.margin, profile->second, interference);
      if (!lane) continue;
      lane->rate *= turns;
      group.lanes.push_back(*std::move(lane));
    }
    if (!group.lanes.empty()) groups.push_back(std::move(group));
  }
  solve_device(groups, interference);
  for (const LaneGroup& group : groups) {
    const std::vector<Assignment>& assignments = gpulets[group.index]->assignments;
    for (const Lane& lane : group.lanes) {
      predicted[group.index][static_cast<std::size_t>(lane.assignment - assignments.data())] =
          lane.outcome.late;
    }
  }
  return predicted;
}

// Equal for devices with equal predictions.
std::string content_of(const std::vector<const PlannedGpulet*>& gpulets, const Device& device) {
  std::string content = device.type + (device.mig ? " by MIG" : "");
  for (const PlannedGpulet* gpulet : gpulets) {
    content += fmt::format("\n{} {} {} {:a}", to_string(gpulet->service), gpulet->size.percent,
                           gpulet->instance ? to_string(*gpulet->instance) : std::string(),
                           gpulet->duty_cycle_ms);
    for (const Assignment& one : gpulet->assignments) {
      content += fmt::format("\n  {:a} {} {:a} {:a} {}", one.rate, one.batch, one.slowdown,
                             one.slo_ms, one.model);
    }
  }
  return content;
}

}  // namespace

PredictedViolations predict_violations(const Plan& plan, const PlanInput& input) {
  PredictedViolations predicted(plan.gpulets.size());
  std::map<DeviceKey, std::vector<std::size_t>> by_device;
  for (std::size_t at = 0; at < plan.gpulets.size(); ++at) {
    predicted[at].resize(plan.gpulets[at].assignments.size());
    by_device[plan.gpulets[at].device].push_back(at);
  }
  std::unordered_map<std::string, OfDevice> known;
  for (const Device& device : input.cluster.devices) {
    const auto held = by_device.find(device.key);
    if (held == by_device.end()) continue;
    std::vector<const PlannedGpulet*> gpulets;
    for (const std::size_t at : held->second) gpulets.push_back(&plan.gpulets[at]);
    const auto [found, added] = known.try_emplace(content_of(gpulets, device));
    if (added) found->second = predict_device(gpulets, device, input);
    for (std::size_t at = 0; at < gpulets.size(); ++at)
      predicted[held->second[at]] = found->second[at];
  }
  return predicted;
}

}  // namespace gpulet::schedule