#include "schedule/duty_cycle.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpulet::schedule {
namespace {

// A round at a given duty cycle.
struct RoundTotals {
  double busy_ms = 0;                                           // sum of all batches
  double longest_ms = std::numeric_limits<double>::infinity();  // longest cycle within all SLOs
  bool fits = true;                                             // every curve has its batch
};

RoundTotals round_totals(std::span<const BatchSlot> slots, double duty_cycle_ms,
                         double deviations) {
  RoundTotals round;
  for (const BatchSlot& slot : slots) {
    const std::uint32_t batch = batch_for_cycle(slot, duty_cycle_ms, deviations);
    if (batch > slot.curve->max_batch) return {0, 0, false};
    const double latency_ms = slot.curve->latency_ms[batch - 1];
    round.busy_ms += latency_ms;
    round.longest_ms = std::min(round.longest_ms, slot.slo_ms - latency_ms);
  }
  return round;
}

constexpr double kSlack = 1 + kRoundingSlack;

}  // namespace

std::uint32_t batch_for_cycle(const BatchSlot& slot, double duty_cycle_ms, double deviations) {
  const LatencyCurve& curve = *slot.curve;
  const double mean = slot.rate / curve.processes * duty_cycle_ms / 1000 / kSlack;
  const double wanted = deviations > 0 ? mean + deviations * std::sqrt(mean) : mean;
  if (!(wanted <= curve.max_batch)) return curve.max_batch + 1;
  const auto whole = static_cast<std::uint32_t>(wanted);
  std::uint32_t batch = std::max(1U, whole < wanted ? whole + 1 : whole);
  if (curve.headroom == nullptr || duty_cycle_ms <= 0) return batch;
  while (batch <= curve.max_batch &&
         requests_held(curve, batch, slot.slo_ms, duty_cycle_ms) < mean) {
    ++batch;
  }
  return batch;
}

std::optional<double> min_duty_cycle_ms(std::span<const BatchSlot> slots, double deviations) {
  if (slots.size() > kMostModelsOfGpulet) return std::nullopt;
  double duty_cycle_ms = 0;
  // Terminates: the cycle grows only when a batch does, and batches end at max_batch.
  while (true) {
    const RoundTotals round = round_totals(slots, duty_cycle_ms, deviations);
    if (!round.fits) return std::nullopt;
    if (duty_cycle_ms > round.longest_ms * kSlack) return std::nullopt;
    if (round.busy_ms <= duty_cycle_ms) return duty_cycle_ms;
    duty_cycle_ms = round.busy_ms;
  }
}

std::optional<DutyCycle> burst_tolerant_cycle(std::span<const BatchSlot> slots) {
  constexpr int kStepsPerDeviation = 2;
  for (int steps = static_cast<int>(kMaxDeviations) * kStepsPerDeviation; steps >= 0; --steps) {
    const double deviations = static_cast<double>(steps) / kStepsPerDeviation;
    if (const std::optional<double> duty_cycle_ms = min_duty_cycle_ms(slots, deviations)) {
      return DutyCycle{*duty_cycle_ms, deviations};
    }
  }
  return std::nullopt;
}

double max_rate_beside(std::span<const BatchSlot> slots, const LatencyCurve& curve, double slo_ms) {
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
    const double held = requests_held(curve, batch, slo_ms, duty_cycle_ms) * curve.processes;
    most = std::max(most, held * 1000 / duty_cycle_ms);
  }
  return most;
}

void rate_curve(LatencyCurve* curve, double slo_ms) {
  curve->max_rate = 0;
  curve->min_request_ms = 0;
  for (std::uint32_t batch = 1; batch <= curve->max_batch; ++batch) {
    const double latency_ms = curve->latency_ms[batch - 1];
    const double held = requests_held(*curve, batch, slo_ms, latency_ms) * curve->processes;
    const double rate = held * 1000 / latency_ms;
    if (rate <= curve->max_rate) continue;
    curve->max_rate = rate;
    curve->min_request_ms = latency_ms / held;
  }
}

namespace {

constexpr int kHalvings = 40;  // of an interval of at most kBatches

// E[(N - batch)+] for N ~ Poisson(mean) = mean - batch + sum over n < batch of (batch - n) P(N =
// n).
double expected_excess(std::uint32_t batch, double mean) {
  double probability = std::exp(-mean);
  double held = 0;
  for (std::uint32_t n = 0; n < batch; ++n) {
    held += (batch - n) * probability;
    probability *= mean / (n + 1);
  }
  return std::max(0.0, mean - batch + held);
}

// t > 0 with mean (exp(t) - 1) = t batch, by Newton's method on a convex function. REQUIRES: mean <
// batch.
double decay_exponent(double batch, double mean) {
  // Start right of the root: exp(t) - 1 > t + t^2 / 2.
  double t = 2 * (batch / mean - 1);
  // A closer start where the batch is much larger than the mean.
  t = std::min(t, 2 * std::log(batch / mean) + 2);
  constexpr int kSteps = 12;
  for (int step = 0; step < kSteps; ++step) {
    t -= (mean * std::expm1(t) - t * batch) / (mean * std::exp(t) - batch);
  }
  return std::max(t, 0.0);
}

double late_fraction(std::uint32_t batch, std::size_t rounds, double mean) {
  const double first = expected_excess(batch, mean) / (mean + std::exp(-mean));
  if (rounds == 1) return first;
  return first * std::exp(-decay_exponent(batch, mean) * batch * static_cast<double>(rounds - 1));
}

double highest_mean(std::uint32_t batch, std::size_t rounds, double at_least) {
  double low = at_least;
  double high = batch;
  for (int step = 0; step < kHalvings; ++step) {
    const double middle = (low + high) / 2;
    (late_fraction(batch, rounds, middle) <= kMostLateByChance ? low : high) = middle;
  }
  return low;
}

}  // namespace

HeadroomTable::HeadroomTable() {
  for (std::size_t rounds = 1; rounds <= kRounds; ++rounds) {
    double before = 0;
    for (std::size_t batch = 1; batch <= kBatches; ++batch) {
      before = highest_mean(static_cast<std::uint32_t>(batch), rounds, before);
      means_[rounds - 1][batch - 1] = before;
    }
  }
}

double HeadroomTable::mean(std::uint32_t batch, double rounds) const {
  if (!(rounds >= 1) || batch == 0) return 0;
  const auto row = std::min(static_cast<std::size_t>(std::min(rounds, 1e6)), kRounds) - 1;
  if (batch <= kBatches) return means_[row][batch - 1];
  return means_[row].back() * batch / kBatches;
}

const HeadroomTable* headroom_table(Headroom headroom) {
  static const HeadroomTable poisson;
  return headroom == Headroom::poisson ? &poisson : nullptr;
}

}  // namespace gpulet::schedule
