#include "serve/deploy/gpulet_lifecycle.h"

#include <algorithm>

#include "gpulet/serve/values/frontend_options.h"

namespace gpulet::serve {

GpuletLifecycle::GpuletLifecycle(BackendRegistry& backends, std::uint64_t run)
    : backends_(backends), first_((run << kRunShift) + 1), next_(first_) {}

RunIds GpuletLifecycle::run_ids() const {
  const std::uint64_t begin = first_ - 1;  // no gpulet has this id
  const std::uint64_t end = begin + (std::uint64_t{1} << kRunShift);
  return {GpuletId{first_}, GpuletId{next_}, GpuletId{end}};
}

void GpuletLifecycle::started_within(Duration took) {
  // A longer start counts at once; each shorter one closes a fifth of the difference.
  constexpr std::int64_t kDecay = 5;
  usual_start_ = std::max(took, usual_start_ - (usual_start_ - took) / kDecay);
}

Duration GpuletLifecycle::patience(Duration least) const {
  constexpr Duration kMost = std::chrono::seconds(20);
  return std::max(least, std::min(usual_start_ + usual_start_ / 2, kMost));
}

void GpuletLifecycle::loaded(const std::vector<schedule::RunningModel>& models, Duration took) {
  // Bounds the memory, because models may come and go for years.
  constexpr std::size_t kMostModels = 16'384;
  for (const schedule::RunningModel& model : models) {
    if (loads_.size() >= kMostModels && !loads_.contains(model.name)) loads_.clear();
    loads_[model.name] = took;
  }
}

std::optional<Duration> GpuletLifecycle::expected_load(
    const schedule::PlannedGpulet& planned) const {
  Duration longest{};
  for (const schedule::Assignment& one : planned.assignments) {
    const auto known = loads_.find(one.model);
    if (known == loads_.end()) return std::nullopt;
    longest = std::max(longest, known->second);
  }
  return longest;
}

void GpuletLifecycle::retire(GpuletId id, FrontendEffects& effects) {
  const GpuletRecord* const gpulet = backends_.find(id);
  if (gpulet == nullptr || gpulet->retiring || !backends_.commanded(gpulet->backend)) return;
  effects.emplace_back(
      SendToBackend{gpulet->backend, RetireGpulet{id, backends_.term_for(gpulet->backend)}});
  backends_.set_retiring(id);
}

}  // namespace gpulet::serve
