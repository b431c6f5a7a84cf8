// What the engine counts since the frontend's start: the counters of a model or an application, and
// those of plans. Each counter that metrics show is a member and a row. The metrics come from the
// rows (frontend/observe/metrics.cc). Plain values; one thread at a time.
#pragma once

#include <array>
#include <cstdint>

#include "gpulet/base/time.h"
#include "gpulet/observe/histogram.h"

namespace gpulet::serve {

template <typename Counters>
struct CounterRow {
  std::uint64_t Counters::*count;
  const char* metric = nullptr;  // its name; null: another metric has the count
  const char* help = nullptr;    // of the metric
};

// ---- a model or an application

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

// All of them.
inline constexpr auto kModelCounters = std::to_array<CounterRow<ModelCounters>>({
    {&ModelCounters::offered, "gpulet_requests_total", "Total requests received."},
    {&ModelCounters::served, "gpulet_requests_succeeded_total",
     "Total requests answered with a result."},
    {&ModelCounters::late, "gpulet_requests_late_total",
     "Total requests answered with a result after their deadline."},
    {&ModelCounters::dropped},  // gpulet_requests_failed_total has both, by their codes
    {&ModelCounters::failed},
    {&ModelCounters::overdue, "gpulet_requests_overdue_total",
     "Total requests answered with too_late at their deadline, while their batch was running."},
    {&ModelCounters::discarded, "gpulet_results_discarded_total",
     "Total results discarded because their request had been answered already."},
});
static_assert(sizeof(ModelCounters) == kModelCounters.size() * sizeof(std::uint64_t),
              "every counter has a row");

// The counters of two frontends together.
[[nodiscard]] ModelCounters sum_of(const ModelCounters& a, const ModelCounters& b);

// ---- plans

struct ReorganisationCounters {
  std::uint64_t plans = 0;  // that came into force
  std::uint64_t devices_taken = 0;
  std::uint64_t devices_given_back = 0;
  std::uint64_t unschedulable = 0;  // plans that leave some rate unserved
  Duration last_took{};             // from the decision until the plan was in force
  Duration longest_took{};
  observe::BucketHistogram took{};
};

// `plans` is the count of the histogram of `took`.
inline constexpr auto kReorganisationCounters = std::to_array<CounterRow<ReorganisationCounters>>({
    {&ReorganisationCounters::unschedulable, "gpulet_plans_unschedulable_total",
     "Total plans that could not serve every rate in full."},
    {&ReorganisationCounters::devices_taken, "gpulet_devices_taken_total",
     "Total devices that plans took into use."},
    {&ReorganisationCounters::devices_given_back, "gpulet_devices_given_back_total",
     "Total devices that plans released."},
});

}  // namespace gpulet::serve
