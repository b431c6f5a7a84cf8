// What became of the requests of a model, or of an application, since the frontend's start: counted
// under its name, whichever version served. Plain values; one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/observe/bucket_histogram.h"

namespace gpulet::serve {

struct ModelCounters {
  std::uint64_t offered = 0;
  std::uint64_t served = 0;   // answered with a result
  std::uint64_t late = 0;     // of these, after the deadline
  std::uint64_t dropped = 0;  // too_late, overloaded
  std::uint64_t failed = 0;   // every other error
  std::uint64_t overdue = 0;  // of the dropped: their batch was running at the deadline
  // Results that came when their request had been answered, and were thrown away. Each belongs to a
  // request that is counted above.
  std::uint64_t discarded = 0;

  // Requests that had no answer in time.
  [[nodiscard]] std::uint64_t violations() const { return late + dropped + failed; }
};

inline constexpr std::size_t kStatusCodes = static_cast<std::size_t>(kLastStatusCode) + 1;

// One request that was answered with a result.
struct ServedTimes {
  Duration latency{};      // from arrival to answer
  Duration queued{};       // before execution, at the frontend and at the gpulet
  Duration executed{};     // of its batch
  Duration transferred{};  // to the gpulet and back
};

struct ModelStatistics {
  // The executions of one batch size, whose results were used.
  struct BatchesOfSize {
    observe::DurationSum executed;
    observe::DurationSum queued;  // at the gpulet
    observe::DurationSum transferred;
  };

  observe::BucketHistogram latency;  // these three hold one value for each success
  observe::BucketHistogram queued;
  observe::BucketHistogram executed;
  observe::DurationSum transferred;
  std::array<std::uint64_t, kStatusCodes> failures{};  // by code; none under ok
  observe::DurationSum failed_after;   // from arrival to the error, of those who were told one
  std::vector<BatchesOfSize> batches;  // [n-1]: of n requests; none for an application
  std::uint64_t executions = 0;        // of batches
  Time last_success{};                 // Time(): none yet

  [[nodiscard]] std::uint64_t successes() const { return latency.count(); }
  [[nodiscard]] std::uint64_t failed(StatusCode code) const {
    return failures[static_cast<std::size_t>(code)];
  }

  void add_success(const ServedTimes& times, Time now);
  void add_failure(StatusCode code, Duration after);
  // Nobody is there to be told.
  void add_cancelled(std::uint64_t requests);
  void add_batch(std::uint32_t requests, Duration queued_there, Duration executed_in,
                 Duration transferred_in);
};

}  // namespace gpulet::serve
