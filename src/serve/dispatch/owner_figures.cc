#include "serve/dispatch/owner_figures.h"

#include <algorithm>
#include <utility>

#include "gpulet/serve/values/frontend_status.h"

namespace gpulet::serve {
namespace {

// Bound a report. The leader needs a sample of the latencies and batches, not all of them.
constexpr std::size_t kMostLatencies = 1024;  // of one model
constexpr std::size_t kMostBatches = 16384;
constexpr std::size_t kMostLost = 1024;

}  // namespace

ModelFigures& OwnerFigures::figures_of(const std::string& model) {
  ModelFigures& figures = models_[model];
  if (figures.model.empty()) figures.model = model;
  return figures;
}

void OwnerFigures::arrived(const std::string& model) {
  if (!routes_.leads()) ++figures_of(model).arrived;
}

void OwnerFigures::answered(const Answer& answer) {
  if (routes_.leads()) return;
  ModelFigures& figures = figures_of(queues_.models()[answer.model].name);
  const RequestTrace& trace = answer.request.trace;
  if (answer.status.ok()) {
    ++figures.served;
    if (trace.answered > answer.request.due()) ++figures.late;
    if (figures.latencies.size() < kMostLatencies)
      figures.latencies.push_back(trace.answered - trace.arrived);
    return;
  }
  ++(is_drop(answer.status.code()) ? figures.dropped : figures.failed);
}

void OwnerFigures::ran(const BatchRun& batch) {
  if (routes_.leads() || batches_.size() >= kMostBatches) return;
  batches_.push_back(
      {batch.gpulet, queues_.models()[batch.model].name, batch.count, batch.executed});
}

void OwnerFigures::lost(const ProcessLost& process) {
  if (routes_.leads() || lost_.size() >= kMostLost) return;
  lost_.push_back(process);
}

void OwnerFigures::take(OwnerReport& report, const std::vector<ModelIndex>& models) {
  for (const ModelIndex model : models)
    figures_of(queues_.models()[model].name).queued += queues_.queued(model);
  for (auto& [name, figures] : models_) report.models.push_back(std::move(figures));
  models_.clear();
  // Equal runs send equal reports.
  std::sort(report.models.begin(), report.models.end(),
            [](const ModelFigures& a, const ModelFigures& b) { return a.model < b.model; });
  report.batches = std::exchange(batches_, {});
  report.lost = std::exchange(lost_, {});
}

}  // namespace gpulet::serve
