#include "serve/dispatch/dispatch_records.h"

#include <algorithm>
#include <utility>

namespace gpulet::serve {

// ---- versions

void DispatchRecords::add(ModelIndex model) {
  if (model >= records_.size()) records_.resize(model + 1);
  records_[model] = std::make_unique<Record>();
  records_[model]->counted_as = model;
}

void DispatchRecords::forget(ModelIndex model) {
  for (const ModelIndex index : before(model)) records_[index]->counted_as = index;
  std::erase(counted(model).before, model);
  records_[model].reset();
}

std::vector<ModelIndex> DispatchRecords::succeed(ModelIndex model, ModelIndex heir) {
  Record& old = *records_[model];
  Record& next = *records_[heir];
  next.counters = std::exchange(old.counters, {});
  next.statistics = std::exchange(old.statistics, {});
  next.latency = std::exchange(old.latency, observe::RecentHistogram(kLatencyWindow));
  next.outcomes = std::exchange(old.outcomes, {});
  // The heir's first instance may have come before it took over.
  if (old.responses) next.responses = std::exchange(old.responses, std::nullopt);
  std::vector<ModelIndex> versions = std::exchange(old.before, {});
  versions.push_back(model);
  next.before.insert(next.before.end(), versions.begin(), versions.end());
  for (const ModelIndex index : versions) records_[index]->counted_as = heir;
  return versions;
}

// ---- requests and batches

void DispatchRecords::cancelled(ModelIndex model, std::size_t count) {
  counted(model).counters.failed += count;
  counted(model).statistics.add_cancelled(count);
}

void DispatchRecords::answered(ModelIndex model, const Request& request, const Status& status,
                               const BatchTimes& times, Time now) {
  Record& record = counted(model);
  const RequestTrace& trace = request.trace;
  const Duration latency = now - trace.arrived;
  if (!status.ok()) {
    const bool dropped = is_drop(status.code());
    ++(dropped ? record.counters.dropped : record.counters.failed);
    record.outcomes.add_failure(dropped, now);
    record.statistics.add_failure(status.code(), latency);
    return;
  }
  ++record.counters.served;
  const bool late = now > request.due();
  if (late) ++record.counters.late;
  record.outcomes.add_served(late, now);
  record.latency.record(latency, now);
  record.statistics.add_success({latency, trace.dispatched - trace.arrived + times.queued,
                                 times.input, times.executed, times.output},
                                now);
}

// ---- response times

void DispatchRecords::keep_responses(ModelIndex model, Duration window) {
  std::optional<Responses>& kept = records_[model]->responses;
  if (!kept) kept.emplace(window);
}

Responses::Period DispatchRecords::take_period(ModelIndex model) {
  std::optional<Responses>& kept = records_[model]->responses;
  return kept ? kept->take_period() : Responses::Period{};
}

// ---- answers

void Answers::serve(ModelIndex model, Request&& request, std::vector<Bytes> outputs,
                    const BatchTimes& times, Time now, DispatchOutput& out) {
  give({std::move(request), model, {}, std::move(outputs)}, times, now, out);
}

void Answers::refuse(ModelIndex model, Request&& request, Status why, Time now,
                     DispatchOutput& out) {
  give({std::move(request), model, std::move(why), {}}, {}, now, out);
}

void Answers::give(Answer answer, const BatchTimes& times, Time now, DispatchOutput& out) {
  answer.request.trace.answered = now;
  record_response(answer.model, answer.request, answer.status, now);
  records_.answered(answer.model, answer.request, answer.status, times, now);
  answer.request.input = Bytes();
  out.answers.push_back(std::move(answer));
}

void Answers::record_response(ModelIndex model, const Request& request, const Status& status,
                              Time now) {
  std::optional<Responses>& responses = records_.responses(model);
  if (!responses) return;
  const Duration response = now - request.trace.arrived;
  if (status.ok()) {
    const RoutedGpulet* const served_by = gpulets_.find(request.trace.gpulet);
    const bool on_cpu = served_by != nullptr && served_by->service == schedule::Service::controlled;
    responses->record(response, on_cpu ? Responses::Where::cpu : Responses::Where::gpu, now);
  } else if (status.code() == StatusCode::too_late) {
    const double slo_ms = queues_.models()[records_.counted_as(model)].slo_ms;
    responses->record(std::max(response, 2 * from_ms(slo_ms)), Responses::Where::nowhere, now);
  }
}

}  // namespace gpulet::serve
