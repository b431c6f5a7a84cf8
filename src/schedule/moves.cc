#include "gpulet/schedule/moves.h"

#include <vector>

#include "gpulet/schedule/reconcile.h"

namespace gpulet::schedule {

Moves count_moves(const Plan& current, const Plan& next) {
  std::vector<RunningGpulet> running;
  running.reserve(current.gpulets.size());
  for (const PlannedGpulet& planned : current.gpulets) {
    RunningGpulet& gpulet = running.emplace_back();
    gpulet.id = GpuletId{running.size()};
    gpulet.device = planned.device;
    gpulet.size = planned.size;
    gpulet.instance = planned.instance;
    for (const Assignment& assignment : planned.assignments) {
      gpulet.models.push_back({assignment.model, assignment.batch});
    }
  }
  const Steps steps = reconcile(running, next);
  return {steps.keep.size(), steps.create.size(), steps.retire.size()};
}

}  // namespace gpulet::schedule
