#include "serve/values/reported_figures.h"

namespace gpulet::serve {
namespace {

GpuletStatistics statistics_of(const GpuletFigures& figures) {
  return {figures.batches, figures.requests, figures.executed, figures.planned};
}

}  // namespace

std::uint64_t ReportedFigures::Model::queued_anywhere() const {
  std::uint64_t sum = 0;
  for (const auto& [member, waiting] : queued) sum += waiting;
  return sum;
}

void ReportedFigures::add(const std::string& member, const ModelFigures& figures, Time now) {
  Model& model = models_[figures.model];
  model.counters.offered += figures.arrived;
  model.counters.served += figures.served;
  model.counters.late += figures.late;
  model.counters.dropped += figures.dropped;
  model.counters.failed += figures.failed;
  model.outcomes.add({figures.served + figures.dropped + figures.failed, figures.late,
                      figures.dropped, figures.failed},
                     now);
  for (const Duration latency : figures.latencies) model.latency.record(latency, now);
  model.queued[member] = figures.queued;
}

void ReportedFigures::add(const std::string& member, const GpuletFigures& figures) {
  Gpulet& gpulet = gpulets_[figures.id];
  const bool begins = gpulet.member != member || figures.batches < gpulet.last.batches;
  if (begins) gpulet.before = sum_of(gpulet.before, statistics_of(gpulet.last));
  gpulet.member = member;
  gpulet.last = figures;
}

void ReportedFigures::forget_member(const std::string& member) {
  for (auto& [name, model] : models_) model.queued.erase(member);
}

void ReportedFigures::keep_only(const std::function<bool(const std::string& model)>& model_known,
                                const std::function<bool(GpuletId)>& gpulet_known) {
  std::erase_if(models_, [&](const auto& one) { return !model_known(one.first); });
  std::erase_if(gpulets_, [&](const auto& one) { return !gpulet_known(one.first); });
}

void ReportedFigures::clear() {
  models_.clear();
  gpulets_.clear();
}

const ReportedFigures::Model* ReportedFigures::find(const std::string& model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? nullptr : &found->second;
}

GpuletStatistics ReportedFigures::statistics(GpuletId id) const {
  const auto found = gpulets_.find(id);
  if (found == gpulets_.end()) return {};
  return sum_of(found->second.before, statistics_of(found->second.last));
}

std::size_t ReportedFigures::in_flight(GpuletId id) const {
  const auto found = gpulets_.find(id);
  return found == gpulets_.end() ? 0 : found->second.last.in_flight;
}

}  // namespace gpulet::serve
