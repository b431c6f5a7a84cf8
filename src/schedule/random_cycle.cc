#include "schedule/random_cycle.h"

#include <array>
#include <cmath>
#include <numbers>

#include "schedule/headroom_table.h"

namespace gpulet::schedule {
namespace {

constexpr double kRateSlack = 1 + kRoundingSlack;  // of rates and times

// With the margin. Between two batches linear; that of one request below it. REQUIRES: size <=
// max_batch.
double planned_ms(const LatencyCurve& curve, double size) {
  if (!(size > 1)) return curve.latency_ms[0];
  const auto below = static_cast<std::uint32_t>(size);
  const double here = curve.latency_ms[below - 1];
  const double part = size - below;
  if (part == 0) return here;
  return here + part * (curve.latency_ms[below] - here);
}

// P(N > 0) of a Poisson number, 1 - exp(-mean): linear between points of a table, because plans ask
// for millions. Never above the mean.
class SomeArrival {
 public:
  SomeArrival() noexcept {
    for (std::size_t at = 0; at < points_.size(); ++at)
      points_[at] = -std::expm1(-static_cast<double>(at) / kPerUnit);
  }
  [[nodiscard]] double operator()(double mean) const {
    const double position = mean * kPerUnit;
    if (!(position > 0)) return 0;
    if (position >= kPoints - 1) return 1;
    const auto below = static_cast<std::size_t>(position);
    return points_[below] +
           (position - static_cast<double>(below)) * (points_[below + 1] - points_[below]);
  }

 private:
  static constexpr std::size_t kPerUnit = 64;
  static constexpr std::size_t kPoints = 20 * kPerUnit + 1;
  std::array<double, kPoints> points_{};
};

const SomeArrival kSomeArrival;

// The variance of what a cycle adds up to: a batch of n takes base + slope * n, none takes nothing.
// The terms of the base fall again where nearly every cycle has a batch; here they stay at their
// maximum.
double variance_of_arrivals(double base_ms, double slope, double arrivals, double some) {
  const double of_some = some < 0.5 ? some * (1 - some) : 0.25;
  const double of_both = arrivals < 1 ? arrivals * (1 - some) : std::exp(-1.0);
  return base_ms * base_ms * of_some + 2 * base_ms * slope * of_both + slope * slope * arrivals;
}

Spread spread_of(const LatencyCurve& curve, double arrivals) {
  const double some = kSomeArrival(arrivals);
  if (some <= 0) return {};
  const double size = std::min(arrivals / some, static_cast<double>(curve.max_batch));
  const double ms = planned_ms(curve, size) / curve.margin;
  const double one_ms = mean_ms(curve, 1U);
  const double most = curve.max_batch;
  const double slope = most > 1 ? (mean_ms(curve, curve.max_batch) - one_ms) / (most - 1) : 0;
  const double noise = some * curve.cv * curve.cv * ms * ms;
  constexpr double kNegligible = 0.01;  // part of the cycles
  return {variance_of_arrivals(one_ms - slope, slope, arrivals, some) + noise,
          slope * slope * arrivals + noise, some > kNegligible ? (1 - some) * ms : 0, some};
}

// Per ms of the cycle, not per arrival.
Busy busy_in(const BatchSlot& slot, double cycle_ms) {
  const double rate = rate_per_ms(slot);
  Busy busy = busy_of(*slot.curve, rate * cycle_ms);
  busy.per_arrival *= rate;
  return busy;
}

Spread spread_in(const BatchSlot& slot, double cycle_ms) {
  return spread_of(*slot.curve, rate_per_ms(slot) * cycle_ms);
}

void add_to(Spread* sum, const Spread& one) {
  sum->variance += one.variance;
  sum->variance_with_batch += one.variance_with_batch;
  sum->pause_ms = std::max(sum->pause_ms, one.pause_ms);
  sum->with_batch = std::max(sum->with_batch, one.with_batch);
}

// The mean of a standard normal number beyond `deviations`, where it is above.
double beyond(double deviations) {
  const double density = std::exp(-deviations * deviations / 2) / std::sqrt(2 * std::numbers::pi);
  return density - deviations * std::erfc(deviations / std::numbers::sqrt2) / 2;
}

// The part of the requests that is late in cycles of that length, which varies by chance: they
// arrive at any time of it, and their batch starts at its end.
double late_in_cycle(double cycle_ms, double wait_ms, double deviation_ms) {
  return deviation_ms / cycle_ms * beyond((wait_ms - cycle_ms) / deviation_ms);
}

}  // namespace

// The mean over Poisson numbers N of arrivals, N > 0, by two sizes with the mean and the variance
// of N. A size below 1 does not exist: the lower one is 1 then, and the weights differ. Exact for
// few arrivals; the latency at the mean alone would neglect that latencies often rise faster than
// linearly from a batch of one.
Busy busy_of(const LatencyCurve& curve, double arrivals) {
  const double some = kSomeArrival(arrivals);
  if (some <= 0) return {};
  const double none = 1 - some;
  const double size = arrivals / some;
  const double variance = std::max(0.0, size * (1 + arrivals - size));
  const double above_one = size - 1;
  double low = 1;
  double high = size;
  double weight = 1;  // of the higher size
  if (above_one * above_one > variance) {
    const double deviation = std::sqrt(variance);
    low = size - deviation;
    high = size + deviation;
    weight = 0.5;
  } else if (above_one > 0) {
    high = size + variance / above_one;
    weight = above_one / (high - 1);
  }
  const double most = curve.max_batch;
  high = std::min(high, most);
  low = std::min(low, most);
  const double low_ms = planned_ms(curve, low);
  const double high_ms = planned_ms(curve, high);
  const double ms = low_ms + weight * (high_ms - low_ms);
  const double slope = high > low ? (high_ms - low_ms) / (high - low) : 0;
  return {some * ms / curve.margin,
          (none * ms + slope * std::max(0.0, 1 - size * none)) / curve.margin};
}

// ---- sums over many slots

SlotSums::SlotSums(std::span<const BatchSlot> slots) {
  // From the shortest batch to the longest cycle that is looked at.
  double shortest_ms = std::numeric_limits<double>::infinity();
  double longest_ms = 0;
  for (const BatchSlot& slot : slots) {
    shortest_ms = std::min(shortest_ms, mean_ms(*slot.curve, 1U));
    longest_ms = std::max(longest_ms, 2 * slot.slo_ms);
  }
  first_ = key_of(shortest_ms);
  last_ = std::max(first_, key_of(longest_ms));
  points_.resize(last_ - first_ + 2);
  for (const BatchSlot& slot : slots) add(slot, slot.rate, 1);
}

bool SlotSums::covers(const BatchSlot& slot) const {
  return !points_.empty() && key_of(mean_ms(*slot.curve, 1U)) >= first_ &&
         key_of(2 * slot.slo_ms) <= last_;
}

void SlotSums::add(const BatchSlot& slot, double rate, double sign) {
  const double per_ms = rate / slot.curve->processes / 1000;
  for (std::size_t at = 0; at < points_.size(); ++at) {
    const double arrivals = per_ms * cycle_of(first_ + at);
    const Spread spread = spread_of(*slot.curve, arrivals);
    points_[at].busy_ms += sign * busy_of(*slot.curve, arrivals).ms;
    points_[at].spread.variance += sign * spread.variance;
    points_[at].spread.variance_with_batch += sign * spread.variance_with_batch;
    points_[at].spread.pause_ms = std::max(points_[at].spread.pause_ms, spread.pause_ms);
    points_[at].spread.with_batch = std::max(points_[at].spread.with_batch, spread.with_batch);
  }
}

// Far above the rounding of sums over a gpulet, and below the slack of a round.
constexpr double kRoundedUp = 1 + kRoundingSlack / 2;

void SlotSums::add(const BatchSlot& slot) {
  add(slot, slot.rate, 1);
  rounding_ = kRoundedUp;
}

void SlotSums::change(const BatchSlot& slot, double rate_before) {
  add(slot, rate_before, -1);
  add(slot);
}

SlotSums SlotSums::times(double factor) const {
  SlotSums scaled = *this;
  for (Point& point : scaled.points_) {
    point.busy_ms *= factor;
    point.spread.variance *= factor;
    point.spread.variance_with_batch *= factor;
    point.spread.pause_ms *= factor;
    point.spread.with_batch *= factor;
  }
  return scaled;
}

bool SlotSums::at_most(const SlotSums& others) const {
  return first_ == others.first_ && last_ == others.last_ &&
         std::equal(points_.begin(), points_.end(), others.points_.begin(),
                    [](const Point& a, const Point& b) {
                      return a.busy_ms <= b.busy_ms && a.spread.variance <= b.spread.variance &&
                             a.spread.variance_with_batch <= b.spread.variance_with_batch &&
                             a.spread.pause_ms <= b.spread.pause_ms &&
                             a.spread.with_batch <= b.spread.with_batch;
                    });
}

// ---- cycles

Busy SlotsInTurn::others(std::size_t at, double cycle_ms) const {
  if (sums_ != nullptr) {
    const Busy own = busy_in(slots_[at], cycle_ms);
    const SlotSums::At all = sums_->at(cycle_ms);
    return {std::max(0.0, all.busy_ms - own.ms) + background_ * cycle_ms,
            std::max(0.0, all.per_ms - own.per_arrival) + background_};
  }
  Busy sum{background_ * cycle_ms, background_};
  for (std::size_t other = 0; other < slots_.size(); ++other) {
    if (other == at) continue;
    const Busy busy = busy_in(slots_[other], cycle_ms);
    sum.ms += busy.ms;
    sum.per_arrival += busy.per_arrival;
  }
  return sum;
}

Spread SlotsInTurn::spread_of_others(std::size_t at, double cycle_ms) const {
  if (sums_ != nullptr) return sums_->at(cycle_ms).spread;
  Spread sum;
  for (std::size_t other = 0; other < slots_.size(); ++other) {
    if (other != at) add_to(&sum, spread_in(slots_[other], cycle_ms));
  }
  return sum;
}

double own_ms_of(const SlotsInTurn& gpulet, std::size_t at, std::uint32_t batch) {
  const LatencyCurve& curve = *gpulet.slots()[at].curve;
  return gpulet.is_alone() ? curve.latency_ms[batch - 1] : mean_ms(curve, batch);
}

double cycle_ms_of(const SlotsInTurn& gpulet, std::size_t at, double own_ms, double longest_ms) {
  double cycle_ms = own_ms;
  if (gpulet.is_alone()) return cycle_ms;
  constexpr double kPrecision = 1e-10;
  constexpr double kSteepest = 0.9;
  constexpr int kMaxSteps = 100;
  // The secant method between bounds, which begins with a derivative: too short a cycle misses some
  // of the time that it needs.
  double too_short_ms = 0;
  double too_long_ms = longest_ms * kRateSlack;
  double last_cycle_ms = 0;
  double last_others_ms = 0;
  for (int step = 0; step < kMaxSteps; ++step) {
    const Busy others = gpulet.others(at, cycle_ms);
    const double missing_ms = own_ms + others.ms - cycle_ms;
    if (std::abs(missing_ms) <= kPrecision * cycle_ms) break;
    (missing_ms > 0 ? too_short_ms : too_long_ms) = cycle_ms;
    const double slope =
        step == 0 ? others.per_arrival : (others.ms - last_others_ms) / (cycle_ms - last_cycle_ms);
    // Where few requests have come, another one mostly makes a whole batch: too steep.
    const double growth = slope < kSteepest ? std::max(0.0, slope) : 0;
    last_cycle_ms = cycle_ms;
    last_others_ms = others.ms;
    const double next_ms = cycle_ms + missing_ms / (1 - growth);
    if (next_ms > too_short_ms && next_ms < too_long_ms) {
      cycle_ms = next_ms;
    } else {
      if (too_short_ms >= longest_ms) return longest_ms * 2;
      cycle_ms = (too_short_ms + too_long_ms) / 2;
      if (!(cycle_ms > too_short_ms && cycle_ms < too_long_ms)) break;
    }
  }
  return cycle_ms;
}

namespace {

// Processes that take turns start a batch in the k-th part of a cycle on average. They were not
// started at equal distances, so that time varies.
constexpr double kDeviationOfTurns = 0.25;

// The mean number of requests that a batch of one of the processes holds.
double held_in_turns(const BatchSlot& slot, std::uint32_t batch, double full_ms) {
  const LatencyCurve& curve = *slot.curve;
  const double latency_ms = curve.latency_ms[batch - 1];
  const double wait_ms = slot.slo_ms - latency_ms - kOverheadAloneMs;
  const double saved_ms = full_ms - planned_ms(curve, batch / 2.0) / curve.margin;
  return requests_held({.batch = batch,
                        .wait = wait_ms * curve.turns() / latency_ms,
                        .half = (latency_ms - saved_ms) / latency_ms,
                        .deviation = std::max(curve.cv, kDeviationOfTurns),
                        .own_deviation = curve.cv * full_ms * curve.turns() / latency_ms});
}

}  // namespace

double held_in_cycle(const SlotsInTurn& gpulet, std::size_t at, std::uint32_t batch,
                     double cycle_ms) {
  const BatchSlot& slot = gpulet.slots()[at];
  const LatencyCurve& curve = *slot.curve;
  const double full_ms = mean_ms(curve, batch);
  if (curve.exclusive) return held_in_turns(slot, batch, full_ms);
  const Spread others = gpulet.spread_of_others(at, cycle_ms);
  const double own_deviation_ms = curve.cv * full_ms;
  const double variance = own_deviation_ms * own_deviation_ms + others.variance;
  const double overhead_ms = gpulet.is_alone() ? kOverheadAloneMs : kOverheadInTurnMs;
  const double wait_ms = slot.slo_ms - curve.latency_ms[batch - 1] - overhead_ms;
  const double saved_ms = full_ms - planned_ms(curve, batch / 2.0) / curve.margin;
  const double held = requests_held({.batch = batch,
                                     .wait = wait_ms / cycle_ms,
                                     .half = (cycle_ms - saved_ms) / cycle_ms,
                                     .deviation = std::sqrt(variance) / cycle_ms,
                                     .own_deviation = own_deviation_ms / cycle_ms});
  if (gpulet.is_alone() || !(wait_ms > 0)) return held;
  // A cycle with a batch of a slot that mostly has none brings no more than a batch either. Where
  // times do not vary, it may bring so little more that the rest can wait for the end of the next.
  const double in_pause_ms = cycle_ms + others.pause_ms;
  const double spare_ms = own_deviation_ms > 0 ? 0 : std::max(0.0, wait_ms - cycle_ms);
  double held_in_pause = batch * cycle_ms / std::max(cycle_ms, in_pause_ms - spare_ms);
  // Where times vary, such a cycle must also be so short that few requests of all are late in it:
  // half of those that may be, since the others are late in cycles of any kind.
  const double deviation_ms =
      std::sqrt(others.variance_with_batch + 2 * own_deviation_ms * own_deviation_ms);
  const double late_in_pause =
      own_deviation_ms > 0 ? others.with_batch * late_in_cycle(in_pause_ms, wait_ms, deviation_ms)
                           : 0;
  if (late_in_pause > kMostLateByChance / 2) held_in_pause = 0;
  // Whatever the others do, no cycle is longer than the request may wait (RoundTotals), on average.
  const double held_in_longest = requests_held({.batch = batch,
                                                .wait = 1,
                                                .half = 1,
                                                .deviation = curve.cv,
                                                .own_deviation = own_deviation_ms / wait_ms});
  return std::max(std::min(held, held_in_pause), held_in_longest * cycle_ms / wait_ms);
}

std::uint32_t least_batch(const SlotsInTurn& gpulet, std::size_t at, double deviations,
                          std::uint32_t least, std::uint32_t most) {
  const BatchSlot& slot = gpulet.slots()[at];
  const LatencyCurve& curve = *slot.curve;
  const double rate = rate_per_ms(slot) / kRateSlack;
  const std::uint32_t none = curve.max_batch + 1;
  most = std::min(most, curve.max_batch);
  std::uint32_t batch = least;
  while (batch <= most) {
    const double longest_ms = curve.turns() * (slot.slo_ms - curve.latency_ms[batch - 1]);
    // Not from the cycle of the batch before: where the others take nearly all of the time, the
    // result depends on the start, and whether a batch holds must not depend on the first one.
    const double cycle_ms = cycle_ms_of(gpulet, at, own_ms_of(gpulet, at, batch), 2 * longest_ms);
    if (cycle_ms > 2 * longest_ms) return none;
    const double mean = rate * cycle_ms;
    const double wanted = deviations > 0 ? mean + deviations * std::sqrt(mean) : mean;
    if (wanted > batch) {  // a larger batch has a longer cycle and needs at least as much
      if (!(wanted <= most)) return none;
      batch = std::max(batch + 1, static_cast<std::uint32_t>(std::ceil(wanted)));
      continue;
    }
    const double held = held_in_cycle(gpulet, at, batch, cycle_ms);
    if (held >= mean) return batch;
    // A larger batch never holds as much more as this.
    constexpr double kMostGrowth = 1.25;
    batch += std::max(1U, static_cast<std::uint32_t>((mean - held) / kMostGrowth));
  }
  return none;
}

}  // namespace gpulet::schedule
