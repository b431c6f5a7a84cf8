#include "gpulet/serve/rollout.h"

#include <algorithm>
#include <utility>

namespace gpulet::serve {

Rollout::Rollout(schedule::Plan plan, schedule::Steps steps,
                 const std::function<GpuletId()>& new_id, Time deadline)
    : plan_(std::move(plan)), steps_(std::move(steps)), deadline_(deadline) {
  for (const schedule::Steps::Keep& keep : steps_.keep) parts_[keep.running] = keep.planned;
  for (const std::size_t planned : steps_.create) {
    const GpuletId id = new_id();
    parts_[id] = planned;
    created_.push_back(id);
    awaited_.insert(id);
  }
}

bool Rollout::is_new(GpuletId id) const {
  return std::binary_search(created_.begin(), created_.end(), id);
}

void Rollout::lost(GpuletId id) {
  awaited_.erase(id);
  parts_.erase(id);
}

std::vector<GpuletId> Rollout::give_up_awaited() {
  std::vector<GpuletId> given_up(awaited_.begin(), awaited_.end());
  for (const GpuletId id : given_up) lost(id);
  return given_up;
}

}  // namespace gpulet::serve
