// DispatchRecords: what became of the requests and batches of each model, with those of its
// previous versions. Others read it. Answers gives each request its answer, and records that. Pure;
// one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/request.h"
#include "gpulet/observe/histogram.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/values/frontend_status.h"
#include "serve/dispatch/dispatch_output.h"
#include "serve/dispatch/model_queues.h"
#include "serve/dispatch/routed_gpulets.h"

namespace gpulet::serve {

inline constexpr Duration kLatencyWindow = std::chrono::seconds(10);  // of percentiles, at least

class DispatchRecords {
 public:
  // ---- what others read

  [[nodiscard]] const ModelCounters& counters(ModelIndex model) const {
    return records_[model]->counters;
  }
  [[nodiscard]] const ModelStatistics& statistics(ModelIndex model) const {
    return records_[model]->statistics;
  }
  [[nodiscard]] observe::Histogram latencies(ModelIndex model, Time now) const {
    return records_[model]->latency.recent(now);
  }
  [[nodiscard]] const RecentOutcomes& outcomes(ModelIndex model) const {
    return records_[model]->outcomes;
  }
  // RecentPace of the batches of the model's rounds.
  [[nodiscard]] double pace(ModelIndex model, Time now) const {
    return records_[model]->pace.pace(now);
  }

  // ---- versions

  void add(ModelIndex model);
  void forget(ModelIndex model);
  // The heir's figures continue those of the model. Returns the versions that count as the heir
  // from now on: the model, and those before it.
  std::vector<ModelIndex> succeed(ModelIndex model, ModelIndex heir);
  // The versions that count as this one.
  [[nodiscard]] const std::vector<ModelIndex>& before(ModelIndex model) const {
    return records_[model]->before;
  }
  // Itself, or the version that replaced it.
  [[nodiscard]] ModelIndex counted_as(ModelIndex model) const {
    return records_[model]->counted_as;
  }

  // ---- requests and batches

  // A request came for the model.
  void offered(ModelIndex model) { ++records_[model]->counters.offered; }
  // Another frontend serves requests that were offered here.
  void handed_on(ModelIndex model, std::size_t count) { counted(model).counters.offered -= count; }
  // Clients gave requests up.
  void cancelled(ModelIndex model, std::size_t count);
  // The request was answered with that status. `times`: of its batch.
  void answered(ModelIndex model, const Request& request, const Status& status,
                const BatchTimes& times, Time now);
  // A batch of the model's rounds was executed.
  void ran(ModelIndex model, Duration executed, Duration expected, Time now) {
    counted(model).pace.add(executed, expected, now);
  }
  void add_batch(ModelIndex model, std::uint32_t count, const BatchTimes& times) {
    counted(model).statistics.add_batch(count, times);
  }
  // A request's deadline passed while its batch ran; its result came after it.
  void overdue(ModelIndex model) { ++counted(model).counters.overdue; }
  void discarded(ModelIndex model) { ++counted(model).counters.discarded; }

  // ---- response times, of models with instances

  // The model has an instance. `window`: as in Responses.
  void keep_responses(ModelIndex model, Duration window);
  // Empty: the model never had an instance.
  [[nodiscard]] std::optional<Responses>& responses(ModelIndex model) {
    return counted(model).responses;
  }
  // The response times since the last call. A dropped request counts with at least twice the
  // objective.
  [[nodiscard]] Responses::Period take_period(ModelIndex model);

 private:
  struct Record {
    ModelIndex counted_as = 0;
    std::vector<ModelIndex> before;
    ModelCounters counters;
    ModelStatistics statistics;
    observe::RecentHistogram latency{kLatencyWindow};
    RecentOutcomes outcomes;
    RecentPace pace;
    std::optional<Responses> responses;
  };

  [[nodiscard]] Record& counted(ModelIndex model) { return *records_[counted_as(model)]; }

  std::vector<std::unique_ptr<Record>> records_;  // null: the index is free
};

class Answers {
 public:
  // All outlive it.
  Answers(const ModelQueues& queues, const RoutedGpulets& gpulets, DispatchRecords& records)
      : queues_(queues), gpulets_(gpulets), records_(records) {}

  // `times`: of the batch that produced the outputs.
  void serve(ModelIndex model, Request&& request, std::vector<Bytes> outputs,
             const BatchTimes& times, Time now, DispatchOutput& out);
  void refuse(ModelIndex model, Request&& request, Status why, Time now, DispatchOutput& out);

 private:
  void give(Answer answer, const BatchTimes& times, Time now, DispatchOutput& out);
  void record_response(ModelIndex model, const Request& request, const Status& status, Time now);

  const ModelQueues& queues_;
  const RoutedGpulets& gpulets_;
  DispatchRecords& records_;
};

}  // namespace gpulet::serve
