#include "gpulet/schedule/reconcile.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

namespace gpulet::schedule {
namespace {

std::vector<LoadedModel> models_of(const PlannedGpulet& planned) {
  std::vector<LoadedModel> models;
  models.reserve(planned.assignments.size());
  for (const Assignment& assignment : planned.assignments) {
    models.push_back({assignment.model, assignment.batch});
  }
  std::sort(models.begin(), models.end());
  return models;
}

bool holds(const RunningGpulet& running, const std::vector<LoadedModel>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const LoadedModel& model) {
    return std::any_of(running.models.begin(), running.models.end(),
                       [&](const LoadedModel& loaded) {
                         return loaded.name == model.name && loaded.max_batch >= model.max_batch;
                       });
  });
}

// How far a running gpulet is from a planned one that it can serve: models too many first, then
// batches that it was prepared for in vain. The same is at distance zero.
using Distance = std::tuple<std::size_t, std::uint64_t>;

Distance distance(const RunningGpulet& running, const std::vector<LoadedModel>& wanted) {
  std::uint64_t batches = 0;
  for (const LoadedModel& loaded : running.models) batches += loaded.max_batch;
  for (const LoadedModel& model : wanted) batches -= model.max_batch;
  return {running.models.size() - wanted.size(), batches};
}

struct Pair {
  Distance distance;
  std::size_t planned = 0;
  const RunningGpulet* running = nullptr;
};

// Every pair that could be kept, nearest first; ties by the plan's order, then by id.
std::vector<Pair> pairs_by_distance(const std::vector<RunningGpulet>& running, const Plan& plan) {
  using Place = std::tuple<DeviceKey, Share, std::optional<partition::MigInstance>, bool>;
  std::map<Place, std::vector<const RunningGpulet*>> by_place;
  for (const RunningGpulet& gpulet : running)
    by_place[{gpulet.device, gpulet.size, gpulet.instance, gpulet.controlled}].push_back(&gpulet);
  std::vector<Pair> pairs;
  for (std::size_t index = 0; index < plan.gpulets.size(); ++index) {
    const PlannedGpulet& planned = plan.gpulets[index];
    const auto here = by_place.find(
        {planned.device, planned.size, planned.instance, planned.service == Service::controlled});
    if (here == by_place.end()) continue;
    const std::vector<LoadedModel> wanted = models_of(planned);
    for (const RunningGpulet* candidate : here->second) {
      if (holds(*candidate, wanted))
        pairs.push_back({distance(*candidate, wanted), index, candidate});
    }
  }
  std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
    return std::tie(a.distance, a.planned, a.running->id) <
           std::tie(b.distance, b.planned, b.running->id);
  });
  return pairs;
}

}  // namespace

Steps reconcile(const std::vector<RunningGpulet>& running, const Plan& plan) {
  Steps steps;
  std::vector<std::optional<GpuletId>> kept_for(plan.gpulets.size());
  std::vector<GpuletId> kept;
  for (const Pair& pair : pairs_by_distance(running, plan)) {
    if (kept_for[pair.planned]) continue;
    if (std::find(kept.begin(), kept.end(), pair.running->id) != kept.end()) continue;
    kept_for[pair.planned] = pair.running->id;
    kept.push_back(pair.running->id);
  }
  for (std::size_t index = 0; index < plan.gpulets.size(); ++index) {
    if (kept_for[index]) {
      steps.keep.push_back({*kept_for[index], index});
    } else {
      steps.create.push_back(index);
    }
  }
  std::sort(kept.begin(), kept.end());
  for (const RunningGpulet& gpulet : running) {
    if (!std::binary_search(kept.begin(), kept.end(), gpulet.id)) steps.retire.push_back(gpulet.id);
  }
  std::sort(steps.retire.begin(), steps.retire.end());
  return steps;
}

}  // namespace gpulet::schedule
