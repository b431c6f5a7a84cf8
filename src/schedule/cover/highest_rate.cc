#include "schedule/cover/highest_rate.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "schedule/headroom_table.h"

namespace gpulet::schedule {
namespace {

double batch_mean_ms(const LatencyCurve& curve, std::uint32_t batch) {
  return curve.latency_ms[batch - 1] / curve.margin;
}

// The most of the mean arrivals in a cycle that the batch holds in any cycle. The shortest cycle
// leaves most time to wait and has most of its time in the batch itself.
double most_held(const LatencyCurve& curve, double slo_ms, std::uint32_t batch) {
  const double full_ms = batch_mean_ms(curve, batch);
  const double half_ms = batch_mean_ms(curve, std::max(1U, batch / 2));
  const double wait_ms = curve.turns() * (slo_ms - curve.latency_ms[batch - 1] - kOverheadInTurnMs);
  return std::max(
      requests_held({.batch = batch, .wait = wait_ms / full_ms, .half = half_ms / full_ms}),
      requests_held({.batch = batch, .wait = 1, .half = 1}));
}

}  // namespace

HighestRate::HighestRate(const LatencyCurve& curve, double slo_ms)
    : margin_(curve.margin), processes_(curve.processes) {
  if (curve.max_batch == 0) return;
  limits_.reserve(curve.max_batch);
  for (std::uint32_t batch = 1; batch <= curve.max_batch; ++batch) {
    const double latency_ms = curve.latency_ms[batch - 1];
    const double wait_ms = curve.turns() * (slo_ms - latency_ms);
    if (curve.random_arrivals) {
      limits_.push_back({most_held(curve, slo_ms, batch), wait_ms});
    } else {
      limits_.push_back({batch / latency_ms, wait_ms / latency_ms});
    }
  }
  keep_highest();
  if (curve.random_arrivals) {
    latency_ms_.assign(curve.latency_ms, curve.latency_ms + curve.max_batch);
    for (std::uint32_t arrivals = 1; arrivals <= curve.max_batch; ++arrivals) {
      const double before = best_per_ms_.empty() ? 0 : best_per_ms_.back();
      best_per_ms_.push_back(std::max(before, arrivals / mean_busy_ms(curve, arrivals)));
    }
  }
  unlimited_ = of(std::numeric_limits<double>::infinity());
}

void HighestRate::add_alternative(const LatencyCurve& curve, double slo_ms) {
  unlimited_ = std::max(unlimited_, alternatives_.emplace_back(curve, slo_ms).unlimited());
}

void HighestRate::keep_highest() {
  std::sort(limits_.begin(), limits_.end(), [](const Limit& a, const Limit& b) {
    return a.by_wait != b.by_wait ? a.by_wait > b.by_wait : a.by_batch > b.by_batch;
  });
  std::size_t kept = 0;
  for (const Limit& limit : limits_) {
    if (kept > 0 && limit.by_batch <= limits_[kept - 1].by_batch) continue;
    limits_[kept++] = limit;
  }
  limits_.resize(kept);
}

double HighestRate::best_minimum(double demand_per_ms) const {
  // One factor rises and the other falls: the best pair is next to their crossing.
  const auto crossing = std::partition_point(
      limits_.begin(), limits_.end(),
      [&](const Limit& limit) { return limit.by_batch <= demand_per_ms * limit.by_wait; });
  const double below = crossing == limits_.begin() ? 0 : std::prev(crossing)->by_batch;
  const double above = crossing == limits_.end() ? 0 : demand_per_ms * crossing->by_wait;
  return std::max(below, above);
}

// With random arrivals. More arrivals make larger batches, which take less time for each request,
// except where measured latencies jump.
double HighestRate::requests_per_ms(double arrivals) const {
  if (!(arrivals > 0)) return 0;
  LatencyCurve curve;
  curve.latency_ms = latency_ms_.data();
  curve.max_batch = static_cast<std::uint32_t>(latency_ms_.size());
  curve.margin = margin_;
  const double here = arrivals / mean_busy_ms(curve, arrivals);
  const auto whole = std::min(static_cast<std::size_t>(arrivals), best_per_ms_.size());
  return whole == 0 ? here : std::max(here, best_per_ms_[whole - 1]);
}

double HighestRate::of(double demand) const {
  if (limits_.empty() || !(demand > 0)) return 0;
  const double per_ms = demand / processes_ / 1000;
  const double most = std::isinf(per_ms) ? limits_.back().by_batch : best_minimum(per_ms);
  double highest = (latency_ms_.empty() ? most : requests_per_ms(most)) * processes_ * 1000;
  for (const HighestRate& alternative : alternatives_)
    highest = std::max(highest, alternative.of(demand));
  return highest;
}

}  // namespace gpulet::schedule
