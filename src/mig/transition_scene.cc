#include "mig/transition_scene.h"

#include <algorithm>
#include <utility>

namespace gpulet::mig {

Scene::Scene(const Goal& goal)
    : goal_(&goal),
      standing_(goal.task->devices.size()),
      taken_(goal.task->devices.size(), 0),
      missing_(goal.to),
      rates_(goal.task->services.size(), 0) {
  for (const Standing& standing : goal.from) {
    standing_[standing.site.device].push_back(standing);
    taken_[standing.site.device] |= goal.memory_of(standing.site);
    for (const Part& part : goal.loads[standing.load].parts) rates_[part.service] += part.rate;
  }
}

std::vector<Standing> Scene::remaining() const {
  std::vector<Standing> remaining;
  for (const std::vector<Standing>& device : standing_) {
    for (const Standing& standing : device) {
      if (!leaves(standing.site)) remaining.push_back(standing);
    }
  }
  return remaining;
}

bool Scene::finished() const {
  const std::vector<Standing> there = remaining();
  return missing_.empty() && !changed() &&
         std::all_of(there.begin(), there.end(), [](const Standing& one) { return one.final; });
}

bool Scene::fits(const Site& site) const {
  if ((taken_[site.device] & goal_->memory_of(site)) != 0) return false;
  const partition::MigGeometry& geometry = goal_->geometry(site.device);
  if (geometry.allows_3g_beside_4g()) return true;
  return std::all_of(standing_[site.device].begin(), standing_[site.device].end(),
                     [&](const Standing& there) {
                       return geometry.compatible(there.site.instance, site.instance);
                     });
}

std::vector<Standing> Scene::in_the_way(const Site& site) const {
  std::vector<Standing> found;
  const partition::MigGeometry& geometry = goal_->geometry(site.device);
  for (const Standing& there : standing_[site.device]) {
    if (geometry.compatible(there.site.instance, site.instance) || leaves(there.site)) continue;
    found.push_back(there);
  }
  return found;
}

bool Scene::is_wanted(const Site& site) const {
  const auto from = std::lower_bound(
      missing_.begin(), missing_.end(), Site{site.device, {}},
      [](const Standing& standing, const Site& value) { return standing.site < value; });
  for (auto at = from; at != missing_.end() && at->site.device == site.device; ++at) {
    if ((goal_->memory_of(at->site) & goal_->memory_of(site)) != 0) return true;
  }
  return false;
}

std::uint32_t Scene::room_lost(const Site& site) const {
  std::uint32_t lost = 0;
  const std::uint32_t own = goal_->memory_of(site);
  for (const partition::MigProfile& profile : goal_->geometry(site.device).profiles()) {
    for (const std::uint32_t start : profile.starts()) {
      const std::uint32_t memory = goal_->memory_of({site.device, {profile.slices, start}});
      if ((memory & taken_[site.device]) == 0 && (memory & own) != 0) lost += profile.memory_slices;
    }
  }
  return lost;
}

std::size_t Scene::extra_devices() const {
  std::size_t count = 0;
  for (std::size_t device = 0; device < standing_.size(); ++device) {
    if (!goal_->planned[device] && !standing_[device].empty()) ++count;
  }
  return count;
}

double Scene::lack(std::uint32_t service) const {
  const double least = goal_->least[service];
  return rates_[service] >= least * (1 - kRateSlack) ? 0 : least - rates_[service];
}

bool Scene::can_do_without(std::span<const Standing> these) const {
  std::vector<double> rates = rates_;
  for (const Standing& standing : these) {
    for (const Part& part : goal_->loads[standing.load].parts) rates[part.service] -= part.rate;
  }
  for (std::size_t service = 0; service < rates.size(); ++service) {
    const bool falls = rates[service] < rates_[service];
    if (falls && rates[service] < goal_->least[service] * (1 - kRateSlack)) return false;
  }
  return true;
}

void Scene::create(const Standing& standing) {
  standing_[standing.site.device].push_back(standing);
  taken_[standing.site.device] |= goal_->memory_of(standing.site);
  for (const Part& part : goal_->loads[standing.load].parts) rates_[part.service] += part.rate;
  step_.created.push_back(standing);
  if (!standing.final) return;
  std::erase_if(missing_, [&](const Standing& one) { return one.site == standing.site; });
}

void Scene::leave(const Standing& standing) {
  for (const Part& part : goal_->loads[standing.load].parts) rates_[part.service] -= part.rate;
  step_.removed.push_back(standing);
}

Step Scene::finish_stage() {
  for (const Standing& gone : step_.removed) {
    std::erase_if(standing_[gone.site.device],
                  [&](const Standing& one) { return one.site == gone.site; });
    taken_[gone.site.device] &= ~goal_->memory_of(gone.site);
  }
  return std::exchange(step_, {});
}

void Scene::repeat(const Step& step) {
  for (const Standing& standing : step.created) create(standing);
  for (const Standing& standing : step.removed) leave(standing);
  finish_stage();
}

bool Scene::leaves(const Site& site) const {
  return std::any_of(step_.removed.begin(), step_.removed.end(),
                     [&](const Standing& one) { return one.site == site; });
}

}  // namespace gpulet::mig
