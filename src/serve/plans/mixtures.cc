#include "serve/plans/mixtures.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "serve/plans/plan_parts.h"

namespace gpulet::serve {

std::size_t Mixtures::mix(Time now, FrontendEffects& effects) {
  constexpr Duration kForEach = std::chrono::microseconds(50);
  constexpr Duration kMost = std::chrono::milliseconds(100);
  const schedule::WantedParts wanted = deployment_.wanted();
  next_ = now + std::min(kMost, static_cast<std::int64_t>(wanted.size()) * kForEach);
  const std::set<GpuletId> ready = ready_of(wanted);
  const std::set<std::string> together = with_next_version(wanted);
  const schedule::MixtureChange change = schedule::next_mixture(
      {backends_.cluster(), fleet_.profiles(), fleet_.in_force().interference.get(),
       deployment_.in_force().serving(), wanted, ready, deployment_.lost_models(),
       deployment_.least_rates(), together});
  if (change.unfinished) deployment_.set_gpulets_changed();
  if (change.empty()) return 0;
  for (const GpuletId id : change.begin) assign(id, *wanted.at(id), effects);
  deployment_.in_force().follow(change, wanted);
  routes_.update(now, effects);
  for (const GpuletId id : change.end) deployment_.gpulets().retire(id, effects);
  return change.begin.size();
}

std::set<GpuletId> Mixtures::ready_of(const schedule::WantedParts& wanted) const {
  std::set<GpuletId> ready;
  for (const auto& [id, planned] : wanted) {
    const GpuletRecord* const gpulet = backends_.find(id);
    if (gpulet == nullptr || gpulet->retiring) continue;
    // One that is restarted keeps its place, but takes none.
    const bool restarts =
        gpulet->state == GpuletState::restarting && deployment_.in_force().serving().contains(id);
    if (gpulet->state == GpuletState::ready || restarts) ready.insert(ready.end(), id);
  }
  return ready;
}

std::set<std::string> Mixtures::with_next_version(const schedule::WantedParts& wanted) const {
  std::set<std::string> models;
  for (const auto& [id, planned] : wanted) {
    for (const schedule::Assignment& one : planned->assignments) {
      const NamedModel* const known = models_.find(one.model);
      if (known != nullptr && known->next) models.insert(one.model);
    }
  }
  return models;
}

void Mixtures::assign(GpuletId id, const schedule::PlannedGpulet& planned,
                      FrontendEffects& effects) {
  const GpuletRecord& gpulet = *backends_.find(id);
  PlanPart part = part_for(planned);
  if (gpulet.part == part) return;
  effects.emplace_back(
      SendToBackend{gpulet.backend, AssignGpulet{id, part, backends_.term_for(gpulet.backend)}});
  backends_.set_part(id, std::move(part));
}

std::size_t Mixtures::mix_if_due(Time now, FrontendEffects& effects) {
  if (now < next_ || !deployment_.gpulets_changed()) return 0;
  deployment_.set_gpulets_changed(false);
  if (!deployment_.rollout() && deployment_.in_force().missing().empty()) return 0;
  return mix(now, effects);
}

}  // namespace gpulet::serve
