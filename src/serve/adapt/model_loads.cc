#include "serve/adapt/model_loads.h"

namespace gpulet::serve {

ModelCounters ModelLoads::counters(const std::string& name, const NamedModel& known) const {
  const ModelCounters own = records_.counters(known.current.index);
  const ReportedFigures::Model* const reported = reported_.find(name);
  return reported == nullptr ? own : sum_of(own, reported->counters);
}

double ModelLoads::queued(const std::string& name, const NamedModel* known) const {
  double waiting = 0;
  if (known != nullptr) waiting = static_cast<double>(queues_.queued(known->current.index));
  if (const ReportedFigures::Model* const reported = reported_.find(name))
    waiting += static_cast<double>(reported->queued_anywhere());
  return waiting;
}

void ModelLoads::add_to(ModelStatus& status, const NamedModel& known, Time now) const {
  const ModelIndex index = known.current.index;
  observe::Histogram latencies = records_.latencies(index, now);
  const ReportedFigures::Model* const reported = reported_.find(status.name);
  if (reported != nullptr) latencies.add(reported->latency.recent(now));
  status.rate_seen = demands_.rate_seen(known.demand);
  status.rate_planned = demands_.rate_planned(known.demand);
  status.queued = queues_.queued(index);
  status.counters = records_.counters(index);
  status.p50_ms = to_ms(latencies.percentile(0.5));
  status.p99_ms = to_ms(latencies.percentile(0.99));
  status.statistics = records_.statistics(index);
  status.last_minute = records_.outcomes(index).of_minute(now);
  status.latest = records_.outcomes(index).of_now(now);
  status.pace = records_.pace(index, now);
  if (reported == nullptr) return;
  status.elsewhere = reported->counters;
  status.queued += reported->queued_anywhere();
  status.last_minute = sum_of(status.last_minute, reported->outcomes.of_minute(now));
  status.latest = sum_of(status.latest, reported->outcomes.of_now(now));
}

}  // namespace gpulet::serve
