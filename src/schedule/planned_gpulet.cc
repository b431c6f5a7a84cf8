#include "schedule/planned_gpulet.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <stdexcept>

namespace gpulet::schedule {
namespace {

bool says_the_same(const PlannedGpulet& a, const PlannedGpulet& b) {
  const auto near = [](double left, double right) {
    return std::abs(left - right) <= kRoundingSlack * std::max(std::abs(left), std::abs(right));
  };
  return a.device == b.device && a.size == b.size && a.instance == b.instance &&
         near(a.duty_cycle_ms, b.duty_cycle_ms) &&
         std::equal(a.assignments.begin(), a.assignments.end(), b.assignments.begin(),
                    b.assignments.end(), [&](const Assignment& left, const Assignment& right) {
                      return left.model == right.model && left.batch == right.batch &&
                             near(left.rate, right.rate) &&
                             near(left.latency_ms, right.latency_ms) &&
                             near(left.slo_ms, right.slo_ms);
                    });
}

}  // namespace

Assignment assignment_of(const Problem& problem, std::size_t device_class, std::size_t size,
                         const Turn& turn, std::uint32_t batch) {
  Assignment assignment;
  assignment.model = problem.models()[turn.model]->name;
  assignment.rate = turn.rate / turn.row->processes;
  assignment.batch = batch;
  const profile::LatencyTable& table = problem.on_class(turn.model, device_class).profile->latency;
  if (turn.row->slowdown != nullptr) assignment.slowdown = turn.row->slowdown[batch - 1];
  const Share share{problem.classes()[device_class].sizes[size]};
  assignment.latency_ms =
      table.latency_ms(batch, share).value() * assignment.slowdown * problem.input().options.margin;
  assignment.slo_ms = turn.slo_ms;
  return assignment;
}

PlannedGpulet planned_gpulet(const Problem& problem, std::size_t device_class, std::size_t size,
                             std::span<const Turn> turns, const Device& device) {
  const std::optional<Cycle> cycle = tight_cycle(turns);
  if (!cycle) throw std::logic_error("a gpulet was planned without a duty cycle");
  PlannedGpulet result;
  result.device = device.key;
  result.size = Share{problem.classes()[device_class].sizes[size]};
  result.duty_cycle_ms = cycle->duty_cycle_ms;
  result.assignments.reserve(turns.size());
  for (const Turn& turn : turns) {
    const std::uint32_t batch = batch_of_round(turn, cycle->duty_cycle_ms, cycle->deviations);
    result.assignments.push_back(assignment_of(problem, device_class, size, turn, batch));
  }
  std::sort(result.assignments.begin(), result.assignments.end(),
            [](const Assignment& a, const Assignment& b) { return a.model < b.model; });
  return result;
}

void repeat_what_runs(const Plan& current, std::vector<PlannedGpulet>& gpulets) {
  std::map<DeviceKey, std::vector<const PlannedGpulet*>> running;
  for (const PlannedGpulet& gpulet : current.gpulets) running[gpulet.device].push_back(&gpulet);
  for (PlannedGpulet& gpulet : gpulets) {
    const auto there = running.find(gpulet.device);
    if (there == running.end()) continue;
    const auto same = std::find_if(
        there->second.begin(), there->second.end(),
        [&gpulet](const PlannedGpulet* other) { return says_the_same(gpulet, *other); });
    if (same == there->second.end()) continue;
    gpulet = **same;
    there->second.erase(same);
  }
}

}  // namespace gpulet::schedule
