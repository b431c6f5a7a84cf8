#include "simulate/tally.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpulet::simulate {

void LatencyBins::add(Duration latency) {
  ++count_;
  const auto bin = static_cast<std::uint64_t>(latency / bin_);
  if (bin < kBins) {
    ++bins_[bin];
  } else {
    above_.push_back(latency);
  }
}

std::optional<double> LatencyBins::percentile_ms(double fraction) const {
  if (count_ == 0) return std::nullopt;
  const auto rank =
      std::max(static_cast<std::uint64_t>(std::ceil(fraction * static_cast<double>(count_))),
               std::uint64_t{1});
  std::uint64_t seen = 0;
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    seen += bins_[bin];
    if (seen >= rank) return to_ms(bin_ * static_cast<std::int64_t>(bin + 1));
  }
  std::vector<Duration> above = above_;
  const auto at = above.begin() + static_cast<std::ptrdiff_t>(rank - seen - 1);
  std::nth_element(above.begin(), at, above.end());
  return to_ms(*at);
}

Tally::Tally(const std::vector<schedule::ModelDemand>& demands, const SimulationOptions& options)
    : step_(options.series_step), seconds_(options.seconds) {
  for (const schedule::ModelDemand& demand : demands) {
    Model& model = models_.emplace_back(
        Model{{}, from_ms(demand.slo_ms), LatencyBins(from_ms(demand.slo_ms))});
    model.counts.name = demand.name;
    model.counts.slo_ms = demand.slo_ms;
  }
  if (!step_) return;
  const auto rows = static_cast<std::size_t>(std::ceil(seconds_ / to_seconds(*step_)));
  for (std::size_t i = 0; i < rows; ++i) {
    SeriesRow& row = series_.emplace_back();
    row.start_s = static_cast<double>(i) * to_seconds(*step_);
    row.offered.resize(models_.size());
    row.violations.resize(models_.size());
    row.batch_planned.resize(models_.size());
    row.batch_run.resize(models_.size());
    row.response_ms.resize(models_.size());
    row.cores.resize(models_.size());
  }
  for (Model& model : models_) model.answered.resize(rows);
}

void Tally::start(Time now) {
  start_ = now;
  used_until_ = now;
  in_force_.time_s = 0;
  most_devices_ = in_force_.devices;
  reorganisations_ = {in_force_};
}

SeriesRow* Tally::row_at(Time time) {
  if (series_.empty()) return nullptr;
  const auto index = static_cast<std::size_t>((time - *start_) / *step_);
  return &series_[std::min(index, series_.size() - 1)];
}

void Tally::offered(std::size_t model, Time now) {
  ++models_[model].counts.offered;
  if (SeriesRow* row = row_at(now)) ++row->offered[model];
}

void Tally::load_ended() {
  for (Model& model : models_) {
    ModelOutcome& counts = model.counts;
    counts.waiting = counts.offered - counts.served - counts.dropped - counts.errors;
  }
}

void Tally::answered(std::size_t model, Time arrived, Time now, const Status& status) {
  Model& of = models_[model];
  const Duration latency = now - arrived;
  bool violated = true;
  if (status.ok()) {
    ++of.counts.served;
    of.latencies.add(latency);
    count_response(of, model, to_ms(latency), now);
    violated = latency > of.slo;
    if (violated) ++of.counts.late;
  } else if (status.code() == StatusCode::too_late || status.code() == StatusCode::overloaded) {
    ++of.counts.dropped;
  } else {
    ++of.counts.errors;
  }
  if (!violated) return;
  if (SeriesRow* row = row_at(arrived)) ++row->violations[model];
}

void Tally::count_response(Model& of, std::size_t model, double latency_ms, Time now) {
  of.sum_ms += latency_ms;
  of.squares_ms += latency_ms * latency_ms;
  of.counts.most_ms = std::max(of.counts.most_ms, latency_ms);
  SeriesRow* const row = row_at(now);
  if (row == nullptr) return;
  // Sums until finish() makes them means.
  row->response_ms[model] += latency_ms;
  ++of.answered[static_cast<std::size_t>(row - series_.data())];
}

void Tally::row_ended(std::size_t row, const schedule::Plan& plan,
                      std::span<const BatchesRun> run) {
  for (std::size_t model = 0; model < models_.size(); ++model) {
    double batches = 0;
    std::size_t gpulets = 0;
    for (const schedule::PlannedGpulet& gpulet : plan.gpulets) {
      for (const schedule::Assignment& one : gpulet.assignments) {
        if (one.model != models_[model].counts.name) continue;
        batches += one.batch;
        ++gpulets;
      }
    }
    if (gpulets > 0) series_[row].batch_planned[model] = batches / static_cast<double>(gpulets);
    if (run[model].batches > 0) {
      series_[row].batch_run[model] =
          static_cast<double>(run[model].requests) / static_cast<double>(run[model].batches);
    }
    series_[row].cores[model] = run[model].core_seconds / to_seconds(*step_);
  }
}

// Adds the time since the last call to what was in force then.
void Tally::use_until(Time now) {
  if (!start_) return;
  device_seconds_ += in_force_.devices * to_seconds(now - used_until_);
  while (used_until_ < now && !series_.empty()) {
    SeriesRow& row = *row_at(used_until_);
    const Time row_end =
        *start_ + from_seconds(std::min(row.start_s + to_seconds(*step_), seconds_));
    const Time until = used_until_ < row_end ? std::min(row_end, now) : now;
    const double row_s = to_seconds(row_end - (*start_ + from_seconds(row.start_s)));
    const double part = to_seconds(until - used_until_) / row_s;
    row.devices += part * in_force_.devices;
    row.share_percent += part * static_cast<double>(in_force_.share_percent);
    used_until_ = until;
  }
  used_until_ = now;
}

void Tally::plan_in_force(const schedule::Plan& plan, Time now) {
  use_until(now);
  in_force_.time_s = start_ ? to_seconds(now - *start_) : 0;
  in_force_.devices = plan.devices_used();
  in_force_.gpulets = plan.gpulets.size();
  in_force_.share_percent = 0;
  for (const schedule::PlannedGpulet& gpulet : plan.gpulets) {
    in_force_.share_percent += gpulet.size.percent;
  }
  if (!start_) return;
  most_devices_ = std::max(most_devices_, in_force_.devices);
  reorganisations_.push_back(in_force_);
}

void Tally::finish_responses(Model& of, std::size_t model) {
  if (of.counts.served > 0) {
    const auto count = static_cast<double>(of.counts.served);
    of.counts.mean_ms = of.sum_ms / count;
    of.counts.deviation_ms =
        std::sqrt(std::max(0.0, of.squares_ms / count - of.counts.mean_ms * of.counts.mean_ms));
  }
  for (std::size_t row = 0; row < series_.size(); ++row) {
    if (of.answered[row] > 0)
      series_[row].response_ms[model] /= static_cast<double>(of.answered[row]);
  }
}

void Tally::finish(Time end, Outcome& outcome) {
  use_until(end);
  std::uint64_t violations = 0;
  for (Model& model : models_) {
    ModelOutcome& counts = model.counts;
    const std::uint64_t violated = counts.late + counts.dropped + counts.errors;
    violations += violated;
    outcome.requests += counts.offered;
    counts.p50_ms = model.latencies.percentile_ms(0.5);
    counts.p99_ms = model.latencies.percentile_ms(0.99);
    finish_responses(model, static_cast<std::size_t>(&model - models_.data()));
    if (counts.offered > 0) {
      counts.violation = static_cast<double>(violated) / static_cast<double>(counts.offered);
    }
    outcome.models.push_back(std::move(counts));
  }
  if (outcome.requests > 0) {
    outcome.violation = static_cast<double>(violations) / static_cast<double>(outcome.requests);
  }
  outcome.devices_used = most_devices_;
  outcome.devices_mean = device_seconds_ / seconds_;
  outcome.reorganisations = std::move(reorganisations_);
  outcome.series = std::move(series_);
}

}  // namespace gpulet::simulate
