#include "serve/deploy/rollout_progress.h"

#include <algorithm>
#include <utility>

namespace gpulet::serve {

Rollout::Rollout(schedule::Plan plan, schedule::Steps steps,
                 const std::set<schedule::DeviceKey>& in_place,
                 const std::function<GpuletId()>& new_id, Time now, Duration patience)
    : plan_(std::move(plan)), steps_(std::move(steps)), began_(now), deadline_(now + patience) {
  for (const schedule::Steps::Keep& keep : steps_.keep) parts_[keep.running] = keep.planned;
  for (const std::size_t planned : steps_.create) {
    const GpuletId id = new_id();
    parts_[id] = planned;
    created_.insert(id);
    if (in_place.contains(plan_.gpulets[planned].device)) {
      postponed_.insert(id);
    } else {
      awaited_.insert(id);
      to_create_.insert(id);
    }
  }
}

GpuletId Rollout::take_to_create() { return to_create_.extract(to_create_.begin()).value(); }

void Rollout::lost(GpuletId id) {
  const auto part = parts_.find(id);
  if (part == parts_.end()) return;
  for (const schedule::Assignment& one : plan_.gpulets[part->second].assignments)
    lost_models_.insert(one.model);
  awaited_.erase(id);
  late_.erase(id);
  to_create_.erase(id);
  postponed_.erase(id);
  parts_.erase(part);
}

void Rollout::wait_longer(GpuletId id, Time until) {
  if (until > deadline_) longer_[id] = until;
}

Time Rollout::deadline() const {
  Time latest = deadline_;
  for (const auto& [id, until] : longer_) {
    if (awaited_.contains(id)) latest = std::max(latest, until);
  }
  for (const auto& [device, until] : leaving_) latest = std::max(latest, until);
  return latest;
}

void Rollout::await_leaving(const schedule::DeviceKey& device, Time until) {
  leaving_[device] = until;
}

bool Rollout::overdue(const schedule::DeviceKey& device, Time now) const {
  const auto leaving = leaving_.find(device);
  return leaving != leaving_.end() && now >= leaving->second;
}

void Rollout::create_postponed(GpuletId id, Time until) {
  leaving_.erase(part_of(id).device);
  postponed_.erase(id);
  awaited_.insert(id);
  // The others of its device have to wait for it.
  deadline_ = std::max(deadline_, until);
}

bool Rollout::awaits_any_of(const std::set<std::string>& models, Time now) const {
  return std::any_of(awaited_.begin(), awaited_.end(), [&](GpuletId id) {
    const auto longer = longer_.find(id);
    if (now >= (longer == longer_.end() ? deadline_ : longer->second)) return false;
    const std::vector<schedule::Assignment>& assigned = part_of(id).assignments;
    return std::any_of(assigned.begin(), assigned.end(),
                       [&models](const auto& one) { return models.contains(one.model); });
  });
}

void Rollout::give_up_postponed() {
  const std::set<GpuletId> not_created = postponed_;
  for (const GpuletId id : not_created) lost(id);
}

}  // namespace gpulet::serve
