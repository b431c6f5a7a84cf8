#include "serve/cluster/owner_reports.h"

#include <algorithm>
#include <cstdint>

namespace gpulet::serve {
namespace {

// Requests for a model between two reports: more than a member can take in half a second.
constexpr std::uint64_t kMostArrivals = 5'000'000;

}  // namespace

void OwnerReports::take_in(const std::string& member, const OwnerReport& report, Time now,
                           FrontendEffects& effects) {
  for (const ModelFigures& figures : report.models) {
    const NamedModel* const model = models_.find(figures.model);
    if (model == nullptr) continue;
    if (figures.arrived > 0)
      demands_.arrived(model->demand, std::min(figures.arrived, kMostArrivals));
    figures_.add(member, figures, now);
  }
  const auto owns = [&](GpuletId id) {
    const GpuletRecord* const gpulet = backends_.find(id);
    return gpulet != nullptr && gpulet->owner == member;
  };
  for (const GpuletFigures& figures : report.gpulets) {
    if (owns(figures.id)) figures_.add(member, figures);
  }
  for (const BatchFigures& batch : report.batches) {
    const NamedModel* const model = models_.find(batch.model);
    if (model == nullptr || !owns(batch.gpulet)) continue;
    feedback_.ran({batch.gpulet, model->current.index, batch.count, batch.executed}, now);
  }
  for (const ProcessLost& lost : report.lost) {
    if (owns(lost.gpulet)) failures_.process_lost(lost, now, effects);
  }
}

}  // namespace gpulet::serve
