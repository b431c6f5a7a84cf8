#include "gpulet/serve/rollout.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpulet::serve {

Rollout::Rollout(schedule::Plan plan, schedule::Steps steps, std::set<schedule::DeviceKey> in_place,
                 const std::function<GpuletId()>& new_id, Time now, Duration timeout)
    : plan_(std::move(plan)),
      steps_(std::move(steps)),
      in_place_(std::move(in_place)),
      began_(now),
      deadline_(now + timeout) {
  for (const schedule::Steps::Keep& keep : steps_.keep) parts_[keep.running] = keep.planned;
  for (const std::size_t planned : steps_.create) {
    const GpuletId id = new_id();
    parts_[id] = planned;
    created_.insert(id);
    if (in_place_.contains(plan_.gpulets[planned].device)) {
      postponed_.insert(id);
    } else {
      awaited_.insert(id);
      shadows_.insert(id);
    }
  }
}

GpuletId Rollout::take_shadow() { return shadows_.extract(shadows_.begin()).value(); }

void Rollout::lost(GpuletId id) {
  awaited_.erase(id);
  shadows_.erase(id);
  postponed_.erase(id);
  parts_.erase(id);
}

void Rollout::clear(Time now, Duration timeout) {
  clearing_ = true;
  deadline_ = now + timeout;
}

void Rollout::make(GpuletId postponed) {
  postponed_.erase(postponed);
  awaited_.insert(postponed);
}

std::vector<GpuletId> Rollout::give_up_awaited() {
  std::vector<GpuletId> given_up(awaited_.begin(), awaited_.end());
  given_up.insert(given_up.end(), postponed_.begin(), postponed_.end());
  for (const GpuletId id : given_up) lost(id);
  return given_up;
}

}  // namespace gpulet::serve
