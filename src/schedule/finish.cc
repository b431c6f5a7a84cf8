#include "schedule/finish.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "schedule/explain.h"
#include "schedule/mig/mig_placing.h"
#include "schedule/placement.h"
#include "schedule/planned_gpulet.h"

namespace gpulet::schedule {

Plan finish(std::string_view policy, const Draft& draft) {
  const Problem& problem = draft.problem();
  Plan plan;
  plan.policy = policy;
  std::vector<std::uint32_t> real = place(draft);
  const std::vector<std::optional<partition::MigInstance>> instances =
      place_instances(draft, &real);

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
    const Device& device = *problem.devices()[real[gpulet->device]];
    PlannedGpulet planned = planned_gpulet(problem, draft.devices()[gpulet->device].device_class,
                                           gpulet->size, gpulet->turns, device);
    planned.instance = instances[static_cast<std::size_t>(gpulet - draft.gpulets().data())];
    plan.gpulets.insert(plan.gpulets.end(), device.processes_per_instance, planned);
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
