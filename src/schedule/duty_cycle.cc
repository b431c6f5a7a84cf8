#include "schedule/duty_cycle.h"

#include <cmath>
#include <utility>

#include "schedule/headroom_table.h"
#include "schedule/random_cycle.h"
#include "schedule/round_probe.h"

namespace gpulet::schedule {
namespace {

constexpr double kSlack = 1 + kRoundingSlack;

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
    longest_ms =
        std::min(longest_ms, slot.curve->turns() * (slot.slo_ms - latency_ms - overhead_ms));
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
  const SlotsInTurn gpulet(slots);
  RoundTotals round;
  const double overhead_ms = gpulet.is_alone() ? 0 : kOverheadInTurnMs;
  for (std::size_t at = 0; at < slots.size(); ++at) {
    const std::uint32_t batch = least_batch(gpulet, at, deviations);
    if (batch > slots[at].curve->max_batch) return std::nullopt;
    round.add(slots[at], batch, overhead_ms);
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
  const SlotsInTurn gpulet(slots);
  const double longest_ms = 2 * slot.slo_ms;
  const double cycle_ms = cycle_ms_of(gpulet, at, own_ms_of(gpulet, at, batch), longest_ms);
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

// Nearly every rule gets harder with the newcomer's rate.
double max_rate_at_random(std::span<const BatchSlot> slots, const LatencyCurve& curve,
                          double slo_ms, double least, double most) {
  // No request takes less of a cycle than min_request_ms.
  double spare = 1;
  for (const BatchSlot& slot : slots) spare -= slot.rate * slot.curve->min_request_ms / 1000;
  if (spare <= 0 || curve.max_rate <= 0) return 0;
  std::vector<BatchSlot> together(slots.begin(), slots.end());
  together.push_back({&curve, 0, slo_ms, 0});
  RoundProbe probe(together, slots.size());
  most = std::min({most, curve.max_rate, spare * 1000 / curve.min_request_ms});
  return highest_rate(probe, least, most);
}

}  // namespace

double max_rate_beside(std::span<const BatchSlot> slots, const LatencyCurve& curve, double slo_ms,
                       double least, double most) {
  if (slots.empty()) return std::min(curve.max_rate, most);
  return curve.random_arrivals ? max_rate_at_random(slots, curve, slo_ms, least, most)
                               : std::min(max_rate_at_intervals(slots, curve, slo_ms), most);
}

void rate_curve(LatencyCurve* curve, double slo_ms) {
  curve->max_rate = 0;
  curve->min_request_ms = std::numeric_limits<double>::infinity();
  const BatchSlot alone{curve, 0, slo_ms, 0};
  // Large batches mostly have the highest rates.
  for (std::uint32_t batch = curve->max_batch; batch > 0; --batch) {
    const double cycle_ms = curve->latency_ms[batch - 1];
    const double longest_ms = cycle_ms / curve->turns() + cycle_ms;
    if (longest_ms > slo_ms * kSlack) continue;
    const double busy_ms = curve->random_arrivals ? mean_ms(*curve, batch) : cycle_ms;
    curve->min_request_ms =
        std::min(curve->min_request_ms, busy_ms / (batch * static_cast<double>(curve->processes)));
    const double per_held = curve->processes * 1000 / cycle_ms;
    if (batch * per_held <= curve->max_rate) continue;  // it holds no more than itself
    const double held = curve->random_arrivals
                            ? held_in_cycle(SlotsInTurn({&alone, 1}), 0, batch, cycle_ms)
                            : batch;
    curve->max_rate = std::max(curve->max_rate, held * curve->processes * 1000 / cycle_ms);
  }
  if (curve->max_rate <= 0) curve->min_request_ms = 0;
}

}  // namespace gpulet::schedule
