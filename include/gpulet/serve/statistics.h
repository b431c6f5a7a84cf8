// What became of the requests of a model, or of an application, since the frontend's start: counted
// under its name, whichever version served. Plain values; one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpulet/core/request.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/observe/bucket_histogram.h"
#include "gpulet/observe/recent_sums.h"

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

// What became of the requests that were answered within some time.
struct Outcomes {
  std::uint64_t answered = 0;  // in whatever way
  std::uint64_t late = 0;
  std::uint64_t dropped = 0;
  std::uint64_t failed = 0;

  [[nodiscard]] std::uint64_t violations() const { return late + dropped + failed; }
  // The part of the requests without an answer in time, 0..1.
  [[nodiscard]] double violated() const {
    return answered == 0 ? 0 : static_cast<double>(violations()) / static_cast<double>(answered);
  }

  friend bool operator==(const Outcomes&, const Outcomes&) = default;
};

// The outcomes of the last minute. Requests that their client took back are not counted.
class RecentOutcomes {
 public:
  void add_served(bool late, Time now);
  void add_failure(bool dropped, Time now);

  [[nodiscard]] Outcomes of_minute(Time now) const;
  // Of the last ten to twenty seconds.
  [[nodiscard]] Outcomes of_now(Time now) const;

 private:
  enum Figure : std::uint8_t { kServed, kLate, kDropped, kFailed, kFigures };
  [[nodiscard]] Outcomes outcomes(Time now, std::size_t slices) const;

  observe::RecentSums<kFigures> sums_;
};

// How long batches ran lately, by how long they were expected to run.
class RecentPace {
 public:
  void add(Duration executed, Duration expected, Time now);

  // 1.5: half as long again as expected; 0: too few batches to tell.
  [[nodiscard]] double pace(Time now) const;

 private:
  enum Figure : std::uint8_t { kBatches, kExecuted, kExpected, kFigures };

  observe::RecentSums<kFigures> sums_;
};

inline constexpr std::size_t kStatusCodes = static_cast<std::size_t>(kLastStatusCode) + 1;

// One request that was answered with a result. `latency` is the sum of the others.
struct ServedTimes {
  Duration latency{};   // from arrival to answer
  Duration queued{};    // waiting, at the frontend and at the gpulet
  Duration input{};     // moving the inputs of its batch to the gpulet
  Duration executed{};  // of its batch
  Duration output{};    // moving the outputs of its batch back
};

// One batch that was executed, from its dispatch to its result.
struct BatchTimes {
  Duration queued{};  // at the gpulet
  Duration input{};
  Duration executed{};
  Duration output{};
};
// Divides the time that a batch was under way. Each end measures how long it received; the rest of
// the transfer (the way of a first byte, and waiting for the connection) is not known by
// direction: half of it counts for each. The parts add up to `under_way`, whatever a backend says.
[[nodiscard]] BatchTimes times_of(const BatchResult& result, Duration under_way, Time now);

struct ModelStatistics {
  // The executions of one batch size, whose results were used.
  struct BatchesOfSize {
    observe::DurationSum executed;
    observe::DurationSum queued;  // at the gpulet
    observe::DurationSum input;
    observe::DurationSum output;
  };

  observe::BucketHistogram latency;  // these three hold one value for each success
  observe::BucketHistogram queued;
  observe::BucketHistogram executed;
  observe::DurationSum input;
  observe::DurationSum output;
  std::array<std::uint64_t, kStatusCodes> failures{};  // by code; none under ok
  observe::DurationSum failed_after;   // from arrival to the error, of those who were told one
  std::vector<BatchesOfSize> batches;  // [n-1]: of n requests; none for an application
  std::uint64_t executions = 0;        // of batches, or of an application as a whole
  Time last_success{};                 // Time(): none yet

  [[nodiscard]] std::uint64_t successes() const { return latency.count(); }
  [[nodiscard]] std::uint64_t failed(StatusCode code) const {
    return failures[static_cast<std::size_t>(code)];
  }

  void add_success(const ServedTimes& times, Time now);
  void add_failure(StatusCode code, Duration after);
  // Nobody is there to be told.
  void add_cancelled(std::uint64_t requests);
  void add_batch(std::uint32_t requests, const BatchTimes& times);
};

}  // namespace gpulet::serve
