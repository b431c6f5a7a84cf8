#include <algorithm>
#include <utility>

#include "gpulet/serve/values/frontend_status.h"

namespace gpulet::serve {
namespace {

constexpr std::size_t kSlicesOfNow = 2;
constexpr std::uint64_t kLeastBatches = 5;  // for a meaningful pace

}  // namespace

ModelCounters sum_of(const ModelCounters& a, const ModelCounters& b) {
  ModelCounters sum;
  for (const CounterRow<ModelCounters>& row : kModelCounters)
    sum.*row.count = a.*row.count + b.*row.count;
  return sum;
}

GpuletStatistics sum_of(const GpuletStatistics& a, const GpuletStatistics& b) {
  return {a.batches + b.batches, a.requests + b.requests, a.executed + b.executed,
          a.planned + b.planned};
}

Outcomes sum_of(const Outcomes& a, const Outcomes& b) {
  return {a.answered + b.answered, a.late + b.late, a.dropped + b.dropped, a.failed + b.failed};
}

void RecentOutcomes::add_served(bool late, Time now) {
  sums_.add(kServed, 1, now);
  if (late) sums_.add(kLate, 1, now);
}

void RecentOutcomes::add_failure(bool dropped, Time now) {
  sums_.add(dropped ? kDropped : kFailed, 1, now);
}

void RecentOutcomes::add(const Outcomes& outcomes, Time now) {
  sums_.add(kServed, outcomes.answered - outcomes.dropped - outcomes.failed, now);
  sums_.add(kLate, outcomes.late, now);
  sums_.add(kDropped, outcomes.dropped, now);
  sums_.add(kFailed, outcomes.failed, now);
}

Outcomes RecentOutcomes::outcomes(Time now, std::size_t slices) const {
  const auto sums = sums_.last(now, slices);
  return {sums[kServed] + sums[kDropped] + sums[kFailed], sums[kLate], sums[kDropped],
          sums[kFailed]};
}

Outcomes RecentOutcomes::of_minute(Time now) const {
  return outcomes(now, observe::RecentSums<kFigures>::kSlices);
}

Outcomes RecentOutcomes::of_now(Time now) const { return outcomes(now, kSlicesOfNow); }

void RecentPace::add(Duration executed, Duration expected, Time now) {
  const auto nanoseconds = [](Duration duration) {
    return static_cast<std::uint64_t>(std::max(duration, Duration::zero()).count());
  };
  sums_.add(kBatches, 1, now);
  sums_.add(kExecuted, nanoseconds(executed), now);
  sums_.add(kExpected, nanoseconds(expected), now);
}

double RecentPace::pace(Time now) const {
  for (const std::size_t slices : {kSlicesOfNow, observe::RecentSums<kFigures>::kSlices}) {
    const auto sums = sums_.last(now, slices);
    if (sums[kBatches] >= kLeastBatches && sums[kExpected] > 0)
      return static_cast<double>(sums[kExecuted]) / static_cast<double>(sums[kExpected]);
  }
  return 0;
}

void Responses::record(Duration response, Where where, Time now) {
  const double seconds = to_seconds(response);
  const std::int64_t number = slot_of(now);
  Slot& slot = slots_[static_cast<std::size_t>(number % kSlots)];
  if (slot.number != number) slot = {number, 0, 0};
  ++slot.count;
  slot.sum_s += seconds;
  period_.histogram.record(response);
  if (where == Where::gpu) {
    ++period_.on_gpu;
    period_.gpu_s += seconds;
    return;
  }
  ++(where == Where::cpu ? period_.on_cpu : period_.dropped);
  period_.rest_s += seconds;
  period_.rest_histogram.record(response);
}

std::optional<Duration> Responses::recent_mean(Time now) const {
  const std::int64_t oldest = slot_of(now) - kSlots + 1;
  std::uint64_t count = 0;
  double sum_s = 0;
  for (const Slot& slot : slots_) {
    if (slot.number < oldest) continue;
    count += slot.count;
    sum_s += slot.sum_s;
  }
  if (count == 0) return std::nullopt;
  return from_seconds(sum_s / static_cast<double>(count));
}

void Responses::Period::add(const Period& other) {
  on_gpu += other.on_gpu;
  on_cpu += other.on_cpu;
  dropped += other.dropped;
  gpu_s += other.gpu_s;
  rest_s += other.rest_s;
  histogram.add(other.histogram);
  rest_histogram.add(other.rest_histogram);
}

Responses::Period Responses::take_period() { return std::exchange(period_, {}); }

BatchTimes times_of(const BatchResult& result, Duration elapsed, Time now) {
  const Duration received =
      std::clamp(result.received, Duration::zero(), std::max(result.queued, Duration::zero()));
  const Duration both_ways = elapsed - result.queued - result.executed;
  const Duration returned = result.returning == Time()
                                ? Duration::zero()
                                : std::clamp(now - result.returning, Duration::zero(),
                                             std::max(both_ways, Duration::zero()));
  BatchTimes times;
  const Duration decoded =
      std::clamp(result.decoded, Duration::zero(), std::max(result.executed, Duration::zero()));
  times.queued = result.queued - received;
  times.executed = result.executed - decoded;
  times.input = received + (both_ways - returned) / 2 + decoded;
  times.output = elapsed - times.queued - times.executed - times.input;
  return times;
}

void ModelStatistics::add_success(const ServedTimes& times, Time now) {
  latency.record(times.latency);
  queued.record(times.queued);
  executed.record(times.executed);
  input.add(times.input);
  output.add(times.output);
  last_success = now;
}

void ModelStatistics::add_failure(StatusCode code, Duration after) {
  ++failures[static_cast<std::size_t>(code)];
  failed_after.add(after);
}

void ModelStatistics::add_cancelled(std::uint64_t requests) {
  failures[static_cast<std::size_t>(StatusCode::cancelled)] += requests;
}

void ModelStatistics::add_batch(std::uint32_t requests, const BatchTimes& times) {
  if (batches.size() < requests) batches.resize(requests);
  BatchesOfSize& of_size = batches[requests - 1];
  of_size.executed.add(times.executed);
  of_size.queued.add(times.queued);
  of_size.input.add(times.input);
  of_size.output.add(times.output);
  ++executions;
}

}  // namespace gpulet::serve
