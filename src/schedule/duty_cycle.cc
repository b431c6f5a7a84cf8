#include "schedule/duty_cycle.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "schedule/headroom_table.h"

namespace gpulet::schedule {
namespace {

constexpr double kSlack = 1 + kRoundingSlack;

// ---- means under random arrivals

double mean_ms(const LatencyCurve& curve, std::uint32_t batch) {
  return curve.latency_ms[batch - 1] / curve.margin;
}

// Between two batches linear; that of one request below it. REQUIRES: size <= max_batch.
double mean_ms(const LatencyCurve& curve, double size) {
  if (!(size > 1)) return mean_ms(curve, 1U);
  const auto below = static_cast<std::uint32_t>(size);
  const double here = curve.latency_ms[below - 1];
  const double part = size - below;
  if (part == 0) return here / curve.margin;
  return (here + part * (curve.latency_ms[below] - here)) / curve.margin;
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

// The mean time of the batches of a slot in cycles that bring `arrivals` requests on average; it
// has none where none arrived.
struct Busy {
  double ms = 0;
  double per_arrival = 0;  // its derivative
};

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
  const double low_ms = mean_ms(curve, low);
  const double high_ms = mean_ms(curve, high);
  const double ms = std::lerp(low_ms, high_ms, weight);
  const double slope = high > low ? (high_ms - low_ms) / (high - low) : 0;
  return {some * ms, none * ms + slope * std::max(0.0, 1 - size * none)};
}

// What the batches of another slot make of a cycle, beyond their mean time. Both increase with the
// arrivals, so that a lower rate never needs a larger batch.
struct Spread {
  double variance = 0;  // of the batches that are not empty
  double pause_ms = 0;  // how much a cycle with a batch is longer than the mean one
};

Spread spread_of(const LatencyCurve& curve, double arrivals) {
  const double some = kSomeArrival(arrivals);
  if (some <= 0) return {};
  const double size = std::min(arrivals / some, static_cast<double>(curve.max_batch));
  const double ms = mean_ms(curve, size);
  const double most = curve.max_batch;
  const double slope =
      most > 1 ? (mean_ms(curve, curve.max_batch) - mean_ms(curve, 1U)) / (most - 1) : 0;
  constexpr double kNegligible = 0.01;  // part of the cycles
  return {slope * slope * arrivals + some * curve.cv * curve.cv * ms * ms,
          some > kNegligible ? (1 - some) * ms : 0};
}

double rate_per_ms(const BatchSlot& slot) { return slot.rate / slot.curve->processes / 1000; }

// The slots of a gpulet as one of them sees the others. With many slots the sums over them are
// tabulated: otherwise each slot would ask all others, for each batch that it tries.
class Gpulet {
 public:
  explicit Gpulet(std::span<const BatchSlot> slots) : slots_(slots) {
    if (slots.size() > kFew) tabulate();
  }

  [[nodiscard]] std::span<const BatchSlot> slots() const { return slots_; }
  [[nodiscard]] bool is_alone() const { return slots_.size() == 1; }

  // The mean time of the other slots' batches in a cycle, and its derivative.
  [[nodiscard]] Busy others(std::size_t at, double cycle_ms) const {
    if (!table_.empty()) {
      const Busy own = one(at, cycle_ms);
      const auto [below, part] = position(cycle_ms);
      const Point& low = table_[below];
      const Point& high = table_[below + 1];
      const double slope = (high.busy_ms - low.busy_ms) / (high.cycle_ms - low.cycle_ms);
      return {std::max(0.0, std::lerp(low.busy_ms, high.busy_ms, part) - own.ms),
              std::max(0.0, slope - own.per_arrival)};
    }
    Busy sum;
    for (std::size_t other = 0; other < slots_.size(); ++other) {
      if (other == at) continue;
      const Busy busy = one(other, cycle_ms);
      sum.ms += busy.ms;
      sum.per_arrival += busy.per_arrival;
    }
    return sum;
  }

  // The sum of the others' variances, and the longest pause by one of them.
  [[nodiscard]] Spread spread_of_others(std::size_t at, double cycle_ms) const {
    if (!table_.empty()) {
      const auto [below, part] = position(cycle_ms);
      const Spread& low = table_[below].spread;
      const Spread& high = table_[below + 1].spread;
      return {std::lerp(low.variance, high.variance, part), std::max(low.pause_ms, high.pause_ms)};
    }
    Spread sum;
    for (std::size_t other = 0; other < slots_.size(); ++other) {
      if (other != at) add(spread(other, cycle_ms), &sum);
    }
    return sum;
  }

 private:
  static constexpr std::size_t kFew = 12;
  static constexpr std::size_t kPoints = 96;
  struct Point {
    double cycle_ms = 0;
    double busy_ms = 0;
    Spread spread;
  };

  // Per ms of the cycle, not per arrival.
  [[nodiscard]] Busy one(std::size_t at, double cycle_ms) const {
    const double rate = rate_per_ms(slots_[at]);
    Busy busy = busy_of(*slots_[at].curve, rate * cycle_ms);
    busy.per_arrival *= rate;
    return busy;
  }
  [[nodiscard]] Spread spread(std::size_t at, double cycle_ms) const {
    return spread_of(*slots_[at].curve, rate_per_ms(slots_[at]) * cycle_ms);
  }
  static void add(const Spread& one, Spread* sum) {
    sum->variance += one.variance;
    sum->pause_ms = std::max(sum->pause_ms, one.pause_ms);
  }

  // Points at equal ratios, from the shortest batch to the longest SLO.
  void tabulate() {
    double shortest_ms = std::numeric_limits<double>::infinity();
    double longest_ms = 0;
    for (const BatchSlot& slot : slots_) {
      shortest_ms = std::min(shortest_ms, mean_ms(*slot.curve, 1U));
      longest_ms = std::max(longest_ms, 2 * slot.slo_ms);
    }
    table_.resize(kPoints);
    log_shortest_ = std::log(shortest_ms);
    log_step_ = std::max(1e-9, (std::log(longest_ms) - log_shortest_) / (kPoints - 1));
    for (std::size_t at = 0; at < kPoints; ++at) {
      Point& point = table_[at];
      point.cycle_ms = std::exp(log_shortest_ + log_step_ * static_cast<double>(at));
      for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
        point.busy_ms += one(slot, point.cycle_ms).ms;
        add(spread(slot, point.cycle_ms), &point.spread);
      }
    }
  }

  // The point below a cycle, and the position between it and the next one.
  [[nodiscard]] std::pair<std::size_t, double> position(double cycle_ms) const {
    const double steps = (std::log(cycle_ms) - log_shortest_) / log_step_;
    const auto below =
        static_cast<std::size_t>(std::clamp(steps, 0.0, static_cast<double>(kPoints - 2)));
    const double low_ms = table_[below].cycle_ms;
    return {below,
            std::clamp((cycle_ms - low_ms) / (table_[below + 1].cycle_ms - low_ms), 0.0, 1.0)};
  }

  std::span<const BatchSlot> slots_;
  std::vector<Point> table_;  // empty: few slots
  double log_shortest_ = 0;
  double log_step_ = 1;
};

// What a batch of the slot adds to its cycle: its mean time or, where it gathers requests until the
// next duty cycle (batching::decide), the planned one.
double own_ms_of(const Gpulet& gpulet, std::size_t at, std::uint32_t batch) {
  const LatencyCurve& curve = *gpulet.slots()[at].curve;
  return gpulet.is_alone() ? curve.latency_ms[batch - 1] : mean_ms(curve, batch);
}

// The least cycle that holds its own batch and what it brings the others; above `longest_ms` where
// the least one is. Starts from `from_ms`.
double cycle_ms_of(const Gpulet& gpulet, std::size_t at, double own_ms, double from_ms,
                   double longest_ms) {
  double cycle_ms = std::max(own_ms, from_ms);
  if (gpulet.is_alone()) return cycle_ms;
  constexpr double kPrecision = 1e-10;
  constexpr double kSteepest = 0.9;
  constexpr int kMaxSteps = 100;
  // Newton's method between bounds: too short a cycle misses some of the time that it needs.
  double too_short_ms = 0;
  double too_long_ms = longest_ms * kSlack;
  for (int step = 0; step < kMaxSteps; ++step) {
    const Busy others = gpulet.others(at, cycle_ms);
    const double missing_ms = own_ms + others.ms - cycle_ms;
    if (std::abs(missing_ms) <= kPrecision * cycle_ms) break;
    (missing_ms > 0 ? too_short_ms : too_long_ms) = cycle_ms;
    // Where few requests have come, another one mostly makes a whole batch: too steep for Newton.
    const double growth = others.per_arrival < kSteepest ? std::max(0.0, others.per_arrival) : 0;
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

// What a request's SLO must leave beyond the mean of its batch.
double spread_ms(const LatencyCurve& curve, std::uint32_t batch) {
  return curve.random_arrivals ? kDeviationsInTime * curve.cv * mean_ms(curve, batch) : 0;
}

// The mean number of requests in a cycle that a batch of the slot holds.
double held_in_cycle(const Gpulet& gpulet, std::size_t at, std::uint32_t batch, double cycle_ms) {
  const BatchSlot& slot = gpulet.slots()[at];
  const LatencyCurve& curve = *slot.curve;
  const double full_ms = mean_ms(curve, batch);
  const Spread others = gpulet.spread_of_others(at, cycle_ms);
  const double variance = curve.cv * curve.cv * full_ms * full_ms + others.variance;
  const double overhead_ms = gpulet.is_alone() ? kOverheadAloneMs : kOverheadInTurnMs;
  const double wait_ms =
      slot.slo_ms - curve.latency_ms[batch - 1] - overhead_ms - spread_ms(curve, batch);
  const double saved_ms = full_ms - mean_ms(curve, batch / 2.0);
  const double held = requests_held({.batch = batch,
                                     .wait = wait_ms / cycle_ms,
                                     .half = (cycle_ms - saved_ms) / cycle_ms,
                                     .deviation = std::sqrt(variance) / cycle_ms});
  if (gpulet.is_alone() || !(wait_ms > 0)) return held;
  // A cycle with a batch of a slot that mostly has none brings no more than a batch either.
  const double held_in_pause = batch * cycle_ms / (cycle_ms + others.pause_ms);
  // Whatever the others do, no cycle is longer than the request may wait (RoundTotals), on average.
  const double held_in_longest =
      requests_held({.batch = batch, .wait = 1, .half = 1, .deviation = curve.cv});
  return std::max(std::min(held, held_in_pause), held_in_longest * cycle_ms / wait_ms);
}

// The smallest batch, from `least` on, that holds the slot's rate and its deviations; above
// max_batch where none does.
std::uint32_t least_batch(const Gpulet& gpulet, std::size_t at, double deviations) {
  const BatchSlot& slot = gpulet.slots()[at];
  const LatencyCurve& curve = *slot.curve;
  const double rate = rate_per_ms(slot) / kSlack;
  double cycle_ms = 0;
  std::uint32_t batch = 1;
  while (batch <= curve.max_batch) {
    const double longest_ms = slot.slo_ms - curve.latency_ms[batch - 1];
    cycle_ms = cycle_ms_of(gpulet, at, own_ms_of(gpulet, at, batch), cycle_ms, 2 * longest_ms);
    if (cycle_ms > 2 * longest_ms) return curve.max_batch + 1;
    const double mean = rate * cycle_ms;
    const double wanted = deviations > 0 ? mean + deviations * std::sqrt(mean) : mean;
    if (wanted > batch) {  // a larger batch has a longer cycle and needs at least as much
      if (!(wanted <= curve.max_batch)) return curve.max_batch + 1;
      batch = std::max(batch + 1, static_cast<std::uint32_t>(std::ceil(wanted)));
      continue;
    }
    const double held = held_in_cycle(gpulet, at, batch, cycle_ms);
    if (held >= mean) return batch;
    // A larger batch never holds as much more as this.
    constexpr double kMostGrowth = 1.25;
    batch += std::max(1U, static_cast<std::uint32_t>((mean - held) / kMostGrowth));
  }
  return batch;
}

// ---- means at fixed intervals

std::uint32_t batch_for_cycle(const BatchSlot& slot, double duty_cycle_ms, double deviations) {
  const LatencyCurve& curve = *slot.curve;
  const double mean = rate_per_ms(slot) * duty_cycle_ms / kSlack;
  const double wanted = deviations > 0 ? mean + deviations * std::sqrt(mean) : mean;
  if (!(wanted <= curve.max_batch)) return curve.max_batch + 1;
  const auto whole = static_cast<std::uint32_t>(wanted);
  return std::max(1U, whole < wanted ? whole + 1 : whole);
}

// A round at a given duty cycle.
struct RoundTotals {
  double busy_ms = 0;                                           // sum of all batches
  double longest_ms = std::numeric_limits<double>::infinity();  // longest cycle within all SLOs
  bool fits = true;                                             // every curve has its batch

  void add(const BatchSlot& slot, std::uint32_t batch, double overhead_ms = 0) {
    const double latency_ms = slot.curve->latency_ms[batch - 1];
    busy_ms += latency_ms;
    longest_ms = std::min(longest_ms, slot.slo_ms - latency_ms - overhead_ms);
  }
};

RoundTotals round_totals(std::span<const BatchSlot> slots, double duty_cycle_ms,
                         double deviations) {
  RoundTotals round;
  for (const BatchSlot& slot : slots) {
    const std::uint32_t batch = batch_for_cycle(slot, duty_cycle_ms, deviations);
    if (batch > slot.curve->max_batch) return {0, 0, false};
    round.add(slot, batch);
  }
  return round;
}

// The least fixed point of d = sum of latencies at d, reached by iterating from 0. A longer cycle
// needs larger batches, which run longer, and leaves less of every SLO, so the shortest cycle that
// holds its own round is the best one for every rule at once. Terminates: the cycle grows only when
// a batch does, and batches end at max_batch.
std::optional<double> cycle_at_intervals(std::span<const BatchSlot> slots, double deviations) {
  double duty_cycle_ms = 0;
  while (true) {
    const RoundTotals round = round_totals(slots, duty_cycle_ms, deviations);
    if (!round.fits) return std::nullopt;
    if (duty_cycle_ms > round.longest_ms * kSlack) return std::nullopt;
    if (round.busy_ms <= duty_cycle_ms) return duty_cycle_ms;
    duty_cycle_ms = round.busy_ms;
  }
}

// No batch depends on another slot's batch, only on its rate. So the least batches make the
// shortest round.
template <typename Note>
std::optional<double> cycle_at_random(std::span<const BatchSlot> slots, double deviations,
                                      const Note& note) {
  const bool unserved = std::any_of(
      slots.begin(), slots.end(), [](const BatchSlot& slot) { return slot.curve->max_batch == 0; });
  if (unserved) return std::nullopt;
  const Gpulet gpulet(slots);
  RoundTotals round;
  const double overhead_ms = gpulet.is_alone() ? 0 : kOverheadInTurnMs;
  for (std::size_t at = 0; at < slots.size(); ++at) {
    const std::uint32_t batch = least_batch(gpulet, at, deviations);
    if (batch > slots[at].curve->max_batch) return std::nullopt;
    round.add(slots[at], batch, overhead_ms + spread_ms(*slots[at].curve, batch));
    if (round.busy_ms > round.longest_ms * kSlack) return std::nullopt;
    note(batch);
  }
  return round.busy_ms;
}

bool random_arrivals(std::span<const BatchSlot> slots) {
  return !slots.empty() && slots.front().curve->random_arrivals;
}

}  // namespace

double mean_busy_ms(const LatencyCurve& curve, double arrivals) {
  return busy_of(curve, arrivals).ms;
}

bool batch_holds(std::span<const BatchSlot> slots, std::size_t at, std::uint32_t batch,
                 double duty_cycle_ms) {
  const BatchSlot& slot = slots[at];
  const LatencyCurve& curve = *slot.curve;
  if (!curve.random_arrivals) return rate_per_ms(slot) * duty_cycle_ms / kSlack <= batch;
  const Gpulet gpulet(slots);
  const double longest_ms = 2 * slot.slo_ms;
  const double cycle_ms = cycle_ms_of(gpulet, at, own_ms_of(gpulet, at, batch), 0, longest_ms);
  return cycle_ms <= longest_ms &&
         held_in_cycle(gpulet, at, batch, cycle_ms) >= rate_per_ms(slot) * cycle_ms / kSlack;
}

std::optional<Round> shortest_round(std::span<const BatchSlot> slots, double deviations) {
  if (slots.size() > kMostModelsOfGpulet) return std::nullopt;
  Round round;
  round.batches.reserve(slots.size());
  const auto note = [&round](std::uint32_t batch) { round.batches.push_back(batch); };
  const std::optional<double> duty_cycle_ms = random_arrivals(slots)
                                                  ? cycle_at_random(slots, deviations, note)
                                                  : cycle_at_intervals(slots, deviations);
  if (!duty_cycle_ms) return std::nullopt;
  round.duty_cycle_ms = *duty_cycle_ms;
  if (round.batches.empty()) {
    for (const BatchSlot& slot : slots) note(batch_for_cycle(slot, *duty_cycle_ms, deviations));
  }
  return round;
}

std::optional<double> min_duty_cycle_ms(std::span<const BatchSlot> slots, double deviations) {
  if (slots.size() > kMostModelsOfGpulet) return std::nullopt;
  if (!random_arrivals(slots)) return cycle_at_intervals(slots, deviations);
  return cycle_at_random(slots, deviations, [](std::uint32_t) {});
}

std::optional<TolerantRound> burst_tolerant_round(std::span<const BatchSlot> slots) {
  constexpr int kStepsPerDeviation = 2;
  for (int steps = static_cast<int>(kMaxDeviations) * kStepsPerDeviation; steps >= 0; --steps) {
    const double deviations = static_cast<double>(steps) / kStepsPerDeviation;
    if (std::optional<Round> round = shortest_round(slots, deviations)) {
      return TolerantRound{*std::move(round), deviations};
    }
  }
  return std::nullopt;
}

namespace {

// For each batch of the newcomer the shortest cycle gives the highest rate.
double max_rate_at_intervals(std::span<const BatchSlot> slots, const LatencyCurve& curve,
                             double slo_ms) {
  double most = 0;
  double duty_cycle_ms = 0;
  for (std::uint32_t batch = 1; batch <= curve.max_batch; ++batch) {
    const double own_ms = curve.latency_ms[batch - 1];
    // The cycle of the previous batch is a lower bound.
    while (true) {
      const RoundTotals round = round_totals(slots, duty_cycle_ms, 0);
      const double busy_ms = round.busy_ms + own_ms;
      const double longest_ms = std::min(round.longest_ms, slo_ms - own_ms);
      if (!round.fits || duty_cycle_ms > longest_ms * kSlack) return most;
      if (busy_ms <= duty_cycle_ms) break;
      duty_cycle_ms = busy_ms;
    }
    most = std::max(most, batch * curve.processes * 1000 / duty_cycle_ms);
  }
  return most;
}

// Every rule gets harder with the newcomer's rate, so the highest one is found by halving.
double max_rate_at_random(std::span<const BatchSlot> slots, const LatencyCurve& curve,
                          double slo_ms) {
  constexpr int kHalvings = 14;
  std::vector<BatchSlot> together(slots.begin(), slots.end());
  together.push_back({&curve, 0, slo_ms, 0});
  const auto holds = [&together](double rate) {
    together.back().rate = rate;
    return min_duty_cycle_ms(together).has_value();
  };
  // No request takes less of a cycle than min_request_ms.
  double spare = 1;
  for (const BatchSlot& slot : slots) spare -= slot.rate * slot.curve->min_request_ms / 1000;
  if (spare <= 0 || curve.max_rate <= 0) return 0;
  double low = 0;
  double high = std::min(curve.max_rate, spare * 1000 / curve.min_request_ms);
  if (holds(high)) return high;
  for (int step = 0; step < kHalvings; ++step) {
    const double middle = (low + high) / 2;
    (holds(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

double max_rate_beside(std::span<const BatchSlot> slots, const LatencyCurve& curve, double slo_ms) {
  if (slots.empty()) return curve.max_rate;
  return curve.random_arrivals ? max_rate_at_random(slots, curve, slo_ms)
                               : max_rate_at_intervals(slots, curve, slo_ms);
}

void rate_curve(LatencyCurve* curve, double slo_ms) {
  curve->max_rate = 0;
  curve->min_request_ms = std::numeric_limits<double>::infinity();
  const BatchSlot alone{curve, 0, slo_ms, 0};
  // Large batches mostly have the highest rates.
  for (std::uint32_t batch = curve->max_batch; batch > 0; --batch) {
    const double cycle_ms = curve->latency_ms[batch - 1];
    if (2 * cycle_ms + spread_ms(*curve, batch) > slo_ms * kSlack) continue;
    const double busy_ms = curve->random_arrivals ? mean_ms(*curve, batch) : cycle_ms;
    curve->min_request_ms =
        std::min(curve->min_request_ms, busy_ms / (batch * static_cast<double>(curve->processes)));
    const double per_held = curve->processes * 1000 / cycle_ms;
    if (batch * per_held <= curve->max_rate) continue;  // it holds no more than itself
    const double held =
        curve->random_arrivals ? held_in_cycle(Gpulet({&alone, 1}), 0, batch, cycle_ms) : batch;
    curve->max_rate = std::max(curve->max_rate, held * curve->processes * 1000 / cycle_ms);
  }
  if (curve->max_rate <= 0) curve->min_request_ms = 0;
}

}  // namespace gpulet::schedule
