// Statistics of models, applications and gpulets since the frontend's start. A model's statistics
// continue across its versions. Plain values; one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/request.h"
#include "gpulet/observe/histogram.h"

namespace gpulet::serve {

// The request counts as dropped: it would have been late, or a queue was full.
[[nodiscard]] inline bool is_drop(StatusCode code) {
  return code == StatusCode::too_late || code == StatusCode::overloaded;
}

struct ModelCounters {
  std::uint64_t offered = 0;
  std::uint64_t served = 0;   // answered with a result
  std::uint64_t late = 0;     // of these, after the deadline
  std::uint64_t dropped = 0;  // too_late, overloaded
  std::uint64_t failed = 0;   // every other error
  std::uint64_t overdue = 0;  // of the dropped: the batch was running at the deadline
  // Results that arrived after their request had been answered. The requests are counted above.
  std::uint64_t discarded = 0;

  // Requests without an answer in time.
  [[nodiscard]] std::uint64_t violations() const { return late + dropped + failed; }
};

// Outcomes of the requests that were answered within some period.
struct Outcomes {
  std::uint64_t answered = 0;  // with a result or an error
  std::uint64_t late = 0;
  std::uint64_t dropped = 0;
  std::uint64_t failed = 0;

  [[nodiscard]] std::uint64_t violations() const { return late + dropped + failed; }
  // The fraction of requests without an answer in time, 0..1.
  [[nodiscard]] double violated() const {
    return answered == 0 ? 0 : static_cast<double>(violations()) / static_cast<double>(answered);
  }

  friend bool operator==(const Outcomes&, const Outcomes&) = default;
};

// The outcomes of the last minute. Cancelled requests are not counted.
class RecentOutcomes {
 public:
  void add_served(bool late, Time now);
  void add_failure(bool dropped, Time now);
  void add(const Outcomes& outcomes, Time now);

  [[nodiscard]] Outcomes of_minute(Time now) const;
  // Of the last ten to twenty seconds.
  [[nodiscard]] Outcomes of_now(Time now) const;

 private:
  enum Figure : std::uint8_t { kServed, kLate, kDropped, kFailed, kFigures };
  [[nodiscard]] Outcomes outcomes(Time now, std::size_t slices) const;

  observe::RecentSums<kFigures> sums_;
};

// The ratio of recent batches' execution time to their expected time.
class RecentPace {
 public:
  void add(Duration executed, Duration expected, Time now);

  // 1.5: half as long again as expected; 0: too few batches.
  [[nodiscard]] double pace(Time now) const;

 private:
  enum Figure : std::uint8_t { kBatches, kExecuted, kExpected, kFigures };

  observe::RecentSums<kFigures> sums_;
};

// Response times of one model, for its core controllers and for the choice of the neediest model.
class Responses {
 public:
  enum class Where : std::uint8_t { gpu, cpu, nowhere };  // nowhere: dropped

  // recent_mean() covers the last `window`, to a tenth of it.
  explicit Responses(Duration window) : slot_(window / kSlots) {}

  void record(Duration response, Where where, Time now);

  [[nodiscard]] std::optional<Duration> recent_mean(Time now) const;

  // The responses since the last call of take_period().
  struct Period {
    std::uint64_t on_gpu = 0;
    std::uint64_t on_cpu = 0;
    std::uint64_t dropped = 0;
    double gpu_s = 0;   // sum of the response times on GPUs
    double rest_s = 0;  // the same on CPUs and of dropped requests
    observe::Histogram histogram{};
    observe::Histogram rest_histogram{};

    [[nodiscard]] std::uint64_t answered() const { return on_gpu + on_cpu; }
    void add(const Period& other);
  };
  [[nodiscard]] Period take_period();

 private:
  static constexpr std::int64_t kSlots = 10;
  struct Slot {
    std::int64_t number = -1;  // since the clock's epoch
    std::uint64_t count = 0;
    double sum_s = 0;
  };
  [[nodiscard]] std::int64_t slot_of(Time time) const { return time.time_since_epoch() / slot_; }

  Duration slot_;
  std::array<Slot, kSlots> slots_{};
  Period period_;
};

inline constexpr std::size_t kStatusCodes = static_cast<std::size_t>(kLastStatusCode) + 1;

// The parts of one successful request's latency, which is their sum.
struct ServedTimes {
  Duration latency{};   // from arrival to answer
  Duration queued{};    // waiting, at the frontend and at the gpulet
  Duration input{};     // transferring its batch's inputs to the gpulet
  Duration executed{};  // of its batch
  Duration output{};    // transferring its batch's outputs back
};

// The parts of one executed batch's time, from its dispatch to its result.
struct BatchTimes {
  Duration queued{};  // at the gpulet
  Duration input{};
  Duration executed{};
  Duration output{};
};
// Divides a batch's time from dispatch to result. Each end measures how long it received; the rest
// of the transfer time (latency of the first byte, waiting for the connection) is not known by
// direction and is split evenly. The parts add up to `elapsed` whatever the backend reports.
[[nodiscard]] BatchTimes times_of(const BatchResult& result, Duration elapsed, Time now);

struct ModelStatistics {
  // The executions of one batch size whose results were used.
  struct BatchesOfSize {
    observe::DurationSum executed;
    observe::DurationSum queued;  // at the gpulet
    observe::DurationSum input;
    observe::DurationSum output;
  };

  observe::BucketHistogram latency;  // these three hold one value per success
  observe::BucketHistogram queued;
  observe::BucketHistogram executed;
  observe::DurationSum input;
  observe::DurationSum output;
  std::array<std::uint64_t, kStatusCodes> failures{};  // by code; none for ok
  observe::DurationSum failed_after;   // from arrival to the error; without cancelled requests
  std::vector<BatchesOfSize> batches;  // [n-1]: of n requests; empty for an application
  std::uint64_t executions = 0;        // of batches, or of an application as a whole
  Time last_success{};                 // Time(): none yet

  [[nodiscard]] std::uint64_t successes() const { return latency.count(); }
  [[nodiscard]] std::uint64_t failed(StatusCode code) const {
    return failures[static_cast<std::size_t>(code)];
  }

  void add_success(const ServedTimes& times, Time now);
  void add_failure(StatusCode code, Duration after);
  void add_cancelled(std::uint64_t requests);
  void add_batch(std::uint32_t requests, const BatchTimes& times);
};

struct GpuletStatistics {
  std::uint64_t batches = 0;
  std::uint64_t requests = 0;
  Duration executed{};
  std::uint64_t planned = 0;  // sum of these batches' planned sizes

  // The mean fraction of the planned batch size; 0 without batches.
  [[nodiscard]] double batch_fill() const {
    return planned == 0 ? 0 : static_cast<double>(requests) / static_cast<double>(planned);
  }
};

// The figures of two frontends together.
[[nodiscard]] ModelCounters sum_of(const ModelCounters& a, const ModelCounters& b);
[[nodiscard]] GpuletStatistics sum_of(const GpuletStatistics& a, const GpuletStatistics& b);
[[nodiscard]] Outcomes sum_of(const Outcomes& a, const Outcomes& b);

}  // namespace gpulet::serve
