#include "simulate/clients.h"

#include <cmath>
#include <functional>
#include <utility>

#include "gpulet/base/random.h"

namespace gpulet::simulate {

std::vector<Target> targets_of(const SimulationInput& input) {
  std::vector<Target> targets;
  for (const schedule::ModelDemand& one : input.demands)
    targets.push_back({one.name, one.rate, one.slo_ms});
  for (const config::ApplicationDemand& one : input.applications)
    targets.push_back({one.name, one.rate, one.slo_ms});
  return targets;
}

// ---- Arrivals

Arrivals::Arrivals(const std::vector<Target>& targets, const config::Trace& trace,
                   std::uint64_t seed, Time start, double seconds)
    : start_(start), seconds_(seconds) {
  for (const Target& target : targets)
    streams_.emplace_back(trace, target.name, target.rate, stream_seed(seed, target.name));
  for (std::size_t target = 0; target < streams_.size(); ++target) {
    const Time first = advance(target);
    if (first != kNever) heap_.push_back({first, target});
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
}

Time Arrivals::advance(std::size_t target) {
  const double at_s = streams_[target].next_s();
  return at_s < seconds_ ? start_ + from_seconds(at_s) : kNever;
}

std::size_t Arrivals::take() {
  std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
  const std::size_t target = heap_.back().target;
  heap_.back().time = advance(target);
  if (heap_.back().time == kNever) {
    heap_.pop_back();
  } else {
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  return target;
}

// ---- OutcomeRecorder

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

OutcomeRecorder::OutcomeRecorder(const SimulationInput& input, const SimulationOptions& options)
    : models_(input.demands.size()), step_(options.series_step), seconds_(options.seconds) {
  for (const schedule::Device& device : input.cluster.devices) {
    if (schedule::is_cpu(device)) cores_[device.key] = device.cores;
  }
  for (const Target& target : targets_of(input)) {
    const Duration slo = from_ms(target.slo_ms);
    Counted& counted = targets_.emplace_back(Counted{{}, slo, LatencyBins(slo)});
    counted.counts.name = target.name;
    counted.counts.slo_ms = target.slo_ms;
  }
  if (!step_) return;
  const auto rows = static_cast<std::size_t>(std::ceil(seconds_ / to_seconds(*step_)));
  for (std::size_t i = 0; i < rows; ++i) {
    SeriesRow& row = series_.emplace_back();
    row.start_s = static_cast<double>(i) * to_seconds(*step_);
    row.offered.resize(targets_.size());
    row.violations.resize(targets_.size());
    row.batch_planned.resize(models_);
    row.batch_rate.resize(models_);
    row.batch_run.resize(models_);
    row.response_ms.resize(targets_.size());
    row.cores.resize(models_);
  }
  for (Counted& target : targets_) target.answered.resize(rows);
}

void OutcomeRecorder::start(Time now) {
  start_ = now;
  used_until_ = now;
  in_force_.time_s = 0;
  most_devices_ = in_force_.devices;
  reorganisations_ = {in_force_};
}

SeriesRow* OutcomeRecorder::row_at(Time time) {
  if (series_.empty()) return nullptr;
  // A request that waited before the load belongs to the first row.
  const auto index = static_cast<std::size_t>((std::max(time, *start_) - *start_) / *step_);
  return &series_[std::min(index, series_.size() - 1)];
}

void OutcomeRecorder::offered(std::size_t target, Time now) {
  ++targets_[target].counts.offered;
  if (SeriesRow* row = row_at(now)) ++row->offered[target];
}

void OutcomeRecorder::load_ended() {
  ended_ = true;
  for (Counted& target : targets_) {
    ModelOutcome& counts = target.counts;
    counts.waiting = counts.offered - counts.served - counts.dropped - counts.errors;
  }
}

void OutcomeRecorder::left(std::size_t target, Time arrived) {
  --targets_[target].counts.offered;
  if (SeriesRow* row = row_at(arrived)) --row->offered[target];
}

void OutcomeRecorder::answered(std::size_t target, Time arrived, Time now, const Status& status) {
  Counted& of = targets_[target];
  const Duration latency = now - arrived;
  bool violated = true;
  if (status.ok()) {
    ++of.counts.served;
    of.latencies.add(latency);
    count_response(of, target, to_ms(latency), now);
    violated = latency > of.slo;
    if (violated) ++of.counts.late;
  } else if (status.code() == StatusCode::too_late || status.code() == StatusCode::overloaded) {
    ++of.counts.dropped;
  } else {
    ++of.counts.errors;
  }
  if (!violated) return;
  if (SeriesRow* row = row_at(arrived)) ++row->violations[target];
}

void OutcomeRecorder::count_response(Counted& of, std::size_t target, double latency_ms, Time now) {
  of.sum_ms += latency_ms;
  of.squares_ms += latency_ms * latency_ms;
  of.counts.most_ms = std::max(of.counts.most_ms, latency_ms);
  SeriesRow* const row = row_at(now);
  if (row == nullptr) return;
  // Sums until finish() makes them means.
  row->response_ms[target] += latency_ms;
  ++of.answered[static_cast<std::size_t>(row - series_.data())];
}

void OutcomeRecorder::row_ended(std::size_t row, const schedule::Plan& plan,
                                std::span<const BatchesRun> run) {
  for (std::size_t model = 0; model < models_; ++model) {
    double batches = 0;
    std::size_t gpulets = 0;
    for (const schedule::PlannedGpulet& gpulet : plan.gpulets) {
      double round_ms = 0;
      for (const schedule::Assignment& one : gpulet.assignments) round_ms += one.latency_ms;
      for (const schedule::Assignment& one : gpulet.assignments) {
        if (one.model != targets_[model].counts.name) continue;
        batches += one.batch;
        if (round_ms > 0) series_[row].batch_rate[model] += 1000 * one.batch / round_ms;
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

// Accounts the time since the last call to the plan in force.
void OutcomeRecorder::use_until(Time now) {
  if (!start_) return;
  device_seconds_ += in_force_.devices * to_seconds(now - used_until_);
  core_seconds_ += cores_reserved_ * to_seconds(now - used_until_);
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

void OutcomeRecorder::plan_in_force(const schedule::Plan& plan, Time now) {
  if (ended_) return;
  use_until(now);
  in_force_.time_s = start_ ? to_seconds(now - *start_) : 0;
  in_force_.devices = plan.devices_used();
  in_force_.gpulets = plan.gpulets.size();
  in_force_.share_percent = 0;
  cores_reserved_ = 0;
  for (const schedule::PlannedGpulet& gpulet : plan.gpulets) {
    in_force_.share_percent += gpulet.size.percent;
    const auto cpu = cores_.find(gpulet.device);
    if (cpu != cores_.end() && gpulet.service == schedule::Service::rounds)
      cores_reserved_ += gpulet.size.fraction() * cpu->second;
  }
  if (!start_) return;
  most_devices_ = std::max(most_devices_, in_force_.devices);
  reorganisations_.push_back(in_force_);
}

void OutcomeRecorder::finish_responses(Counted& of, std::size_t target) {
  if (of.counts.served > 0) {
    const auto count = static_cast<double>(of.counts.served);
    of.counts.mean_ms = of.sum_ms / count;
    of.counts.deviation_ms =
        std::sqrt(std::max(0.0, of.squares_ms / count - of.counts.mean_ms * of.counts.mean_ms));
  }
  for (std::size_t row = 0; row < series_.size(); ++row) {
    if (of.answered[row] > 0)
      series_[row].response_ms[target] /= static_cast<double>(of.answered[row]);
  }
}

void OutcomeRecorder::finish(Time end, Outcome& outcome) {
  use_until(end);
  std::uint64_t violations = 0;
  for (std::size_t target = 0; target < targets_.size(); ++target) {
    Counted& counted = targets_[target];
    ModelOutcome& counts = counted.counts;
    const std::uint64_t violated = counts.late + counts.dropped + counts.errors;
    violations += violated;
    outcome.requests += counts.offered;
    counts.p50_ms = counted.latencies.percentile_ms(0.5);
    counts.p99_ms = counted.latencies.percentile_ms(0.99);
    finish_responses(counted, target);
    if (counts.offered > 0) {
      counts.violation = static_cast<double>(violated) / static_cast<double>(counts.offered);
    }
    (target < models_ ? outcome.models : outcome.applications).push_back(std::move(counts));
  }
  if (outcome.requests > 0) {
    outcome.violation = static_cast<double>(violations) / static_cast<double>(outcome.requests);
  }
  outcome.devices_used = most_devices_;
  outcome.devices_mean = device_seconds_ / seconds_;
  outcome.core_seconds = core_seconds_;
  outcome.reorganisations = std::move(reorganisations_);
  outcome.series = std::move(series_);
}

// ---- SimulatedClients

SimulatedClients::SimulatedClients(const SimulationInput& input, const ServedLoad& load,
                                   const SimulationOptions& options)
    : input_(input), options_(options), recorder_(input, options) {
  const auto add = [this](const serve::ServedModel& model) {
    InferRequest& request = requests_.emplace_back();
    request.model = model.name;
    request.inputs = model.inputs;
    if (model.input_bytes > 0)
      request.payload = Bytes::own(std::vector<std::byte>(model.input_bytes));
  };
  for (const serve::ServedModel& model : load.models) add(model);
  for (const auto& application : load.applications) add(application->front);
}

void SimulatedClients::start(Time now) {
  recorder_.start(now);
  arrivals_.emplace(targets_of(input_), options_.trace ? *options_.trace : no_trace_, options_.seed,
                    now, options_.seconds);
  next_ = options_.waiting.empty() ? arrivals_->next() : now;
}

InferRequest SimulatedClients::take_request() {
  if (free_.empty()) {
    free_.push_back(pending_.size());
    pending_.emplace_back();
  }
  const std::uint64_t tag = free_.back();
  free_.pop_back();
  Pending& taken = pending_[tag];
  taken = {next_, 0, true, false};
  age_of_taken_ = {};
  if (taken_waiting_ < options_.waiting.size()) {
    const WaitingRequest& waiting = options_.waiting[taken_waiting_++];
    taken.target = waiting.model;
    age_of_taken_ = waiting.age;
  } else {
    taken.target = arrivals_->take();
  }
  recorder_.offered(taken.target, next_);
  taken.arrived -= age_of_taken_;
  if (taken_waiting_ == options_.waiting.size()) next_ = arrivals_->next();
  InferRequest request = requests_[taken.target];
  request.tag = tag;
  return request;
}

void SimulatedClients::answered(InferReply reply, Time now) {
  Pending& request = pending_[reply.tag];
  if (!request.left) recorder_.answered(request.target, request.arrived, now, reply.status);
  request.outstanding = false;
  free_.push_back(reply.tag);
}

std::vector<WaitingRequest> SimulatedClients::leave(std::span<const std::size_t> queued, Time now) {
  std::vector<Pending*> by_age;
  for (Pending& request : pending_) {
    if (request.outstanding) by_age.push_back(&request);
  }
  std::sort(by_age.begin(), by_age.end(), [](const Pending* a, const Pending* b) {
    return std::pair(a->arrived, a) < std::pair(b->arrived, b);
  });
  std::vector<std::size_t> to_leave(queued.begin(), queued.end());
  std::vector<WaitingRequest> left;
  for (auto at = by_age.rbegin(); at != by_age.rend(); ++at) {
    Pending& request = **at;
    if (to_leave[request.target] == 0) continue;
    --to_leave[request.target];
    request.left = true;
    recorder_.left(request.target, request.arrived);
    left.push_back({request.target, now - request.arrived});
  }
  std::reverse(left.begin(), left.end());
  return left;
}

}  // namespace gpulet::simulate
