#include "schedule/finish.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include "schedule/explain.h"
#include "schedule/placement.h"

namespace gpulet::schedule {
namespace {

PlannedGpulet planned(const Draft& draft, const DraftGpulet& gpulet, const Device& device) {
  const Problem& problem = draft.problem();
  const std::size_t device_class = draft.devices()[gpulet.device].device_class;
  const std::optional<Cycle> cycle = tight_cycle(gpulet.turns);
  if (!cycle) throw std::logic_error("a draft holds a gpulet without a duty cycle");
  PlannedGpulet result;
  result.device = device.key;
  result.size = Share{draft.percent(gpulet)};
  result.duty_cycle_ms = cycle->duty_cycle_ms;
  result.assignments.reserve(gpulet.turns.size());
  for (const Turn& turn : gpulet.turns) {
    Assignment& assignment = result.assignments.emplace_back();
    assignment.model = problem.models()[turn.model]->name;
    assignment.rate = turn.rate;
    assignment.batch = batch_of_round(turn, cycle->duty_cycle_ms, cycle->deviations);
    const profile::LatencyTable& table =
        problem.on_class(turn.model, device_class).profile->latency;
    if (turn.row->slowdown != nullptr)
      assignment.slowdown = turn.row->slowdown[assignment.batch - 1];
    assignment.latency_ms = table.latency_ms(assignment.batch, result.size).value() *
                            assignment.slowdown * problem.input().options.margin;
    assignment.slo_ms = turn.slo_ms;
  }
  std::sort(result.assignments.begin(), result.assignments.end(),
            [](const Assignment& a, const Assignment& b) { return a.model < b.model; });
  return result;
}

bool says_the_same(const PlannedGpulet& a, const PlannedGpulet& b) {
  const auto near = [](double left, double right) {
    return std::abs(left - right) <= kRoundingSlack * std::max(std::abs(left), std::abs(right));
  };
  return a.device == b.device && a.size == b.size && near(a.duty_cycle_ms, b.duty_cycle_ms) &&
         std::equal(a.assignments.begin(), a.assignments.end(), b.assignments.begin(),
                    b.assignments.end(), [&](const Assignment& left, const Assignment& right) {
                      return left.model == right.model && left.batch == right.batch &&
                             near(left.rate, right.rate) &&
                             near(left.latency_ms, right.latency_ms) &&
                             near(left.slo_ms, right.slo_ms);
                    });
}

// What differs from the plan in force by rounding alone, because it was reached on another way, is
// what runs already.
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

}  // namespace

Plan finish(std::string_view policy, const Draft& draft) {
  const Problem& problem = draft.problem();
  Plan plan;
  plan.policy = policy;
  const std::vector<std::uint32_t> real = place(draft);

  std::vector<const DraftGpulet*> order;
  order.reserve(draft.gpulets().size());
  for (const DraftGpulet& gpulet : draft.gpulets()) {
    if (!gpulet.turns.empty()) order.push_back(&gpulet);
  }
  std::stable_sort(order.begin(), order.end(), [&](const DraftGpulet* a, const DraftGpulet* b) {
    if (real[a->device] != real[b->device]) return real[a->device] < real[b->device];
    return a->size > b->size;
  });
  plan.gpulets.reserve(order.size());
  for (const DraftGpulet* gpulet : order) {
    plan.gpulets.push_back(planned(draft, *gpulet, *problem.devices()[real[gpulet->device]]));
  }
  if (problem.input().current != nullptr) repeat_what_runs(*problem.input().current, plan.gpulets);
  for (std::size_t model = 0; model < problem.models().size(); ++model) {
    const double left = draft.left(model);
    if (left <= 0) continue;
    plan.unserved.push_back({problem.models()[model]->name, left,
                             explain_unserved(problem, model, left, draft.devices_used())});
  }
  return plan;
}

}  // namespace gpulet::schedule
