#include "gpulet/serve/statistics.h"

namespace gpulet::serve {

void ModelStatistics::add_success(const ServedTimes& times, Time now) {
  latency.record(times.latency);
  queued.record(times.queued);
  executed.record(times.executed);
  transferred.add(times.transferred);
  last_success = now;
}

void ModelStatistics::add_failure(StatusCode code, Duration after) {
  ++failures[static_cast<std::size_t>(code)];
  failed_after.add(after);
}

void ModelStatistics::add_cancelled(std::uint64_t requests) {
  failures[static_cast<std::size_t>(StatusCode::cancelled)] += requests;
}

void ModelStatistics::add_batch(std::uint32_t requests, Duration queued_there, Duration executed_in,
                                Duration transferred_in) {
  if (batches.size() < requests) batches.resize(requests);
  BatchesOfSize& of_size = batches[requests - 1];
  of_size.executed.add(executed_in);
  of_size.queued.add(queued_there);
  of_size.transferred.add(transferred_in);
  ++executions;
}

}  // namespace gpulet::serve
