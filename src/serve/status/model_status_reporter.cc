#include "serve/status/model_status_reporter.h"

#include <algorithm>
#include <limits>

#include "serve/requests/application_states.h"

namespace gpulet::serve {

ModelStatus ModelStatusReporter::status_of(const std::string& name, const NamedModel& known,
                                           Time now) const {
  ModelStatus one;
  one.name = name;
  one.state = models_.states().state_of(name, known);
  one.version = known.current.id;
  one.slo_ms = models_.served(known).slo_ms;
  one.number = models_.states().shown_number(name, known);
  one.reason = models_.states().reason_of(name, known);
  one.crashes = models_.setbacks().quarantine().crashes(name);
  one.quarantined_for = models_.setbacks().quarantine().left(name, now);
  loads_.add_to(one, known, now);
  plans_.add_to(one);
  cluster_.add_to(one);
  adaptation_.add_to(one);
  return one;
}

ModelStatus ModelStatusReporter::status_of(const ApplicationRunner::Row& row, Time now) const {
  ModelStatus one;
  one.name = row.application->front.name;
  one.state = serve::state_of(*row.application, models_);
  one.slo_ms = row.application->front.slo_ms;
  one.rate_seen = row.rate_seen;
  one.rate_planned = std::numeric_limits<double>::infinity();
  for (const auto& [name, calls] : calls_of(*row.application)) {
    const NamedModel* const known = models_.find(name);
    const double rate = known == nullptr ? 0 : loads_.rate_planned(*known);
    one.rate_planned = std::min(one.rate_planned, rate / static_cast<double>(calls));
    one.calls.push_back(name);
  }
  one.reason = why_unserved(*row.application, models_);
  one.queued = row.runs;
  one.counters = row.counters;
  one.p50_ms = to_ms(row.latencies.percentile(0.5));
  one.p99_ms = to_ms(row.latencies.percentile(0.99));
  one.statistics = row.statistics;
  one.application = true;
  one.last_minute = row.outcomes.of_minute(now);
  one.latest = row.outcomes.of_now(now);
  return one;
}

std::optional<ModelStatus> ModelStatusReporter::status_of(std::string_view name, Time now) const {
  if (const NamedModel* const known = models_.find(name))
    return status_of(std::string(name), *known, now);
  if (const auto row = applications_.row(std::string(name), now)) return status_of(*row, now);
  return std::nullopt;
}

}  // namespace gpulet::serve
