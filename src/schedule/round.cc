#include "schedule/round.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpulet::schedule {
namespace {

// A round at a duty cycle: how long all batches run, and which of them runs longest against its
// SLO.
struct RoundAt {
  double busy_ms = 0;
  double latest_ms =
      std::numeric_limits<double>::infinity();  // the longest cycle that the SLOs allow
  bool fits = true;                             // every batch is one that its row has
};

RoundAt round_at(std::span<const Turn> turns, double duty_cycle_ms, double deviations) {
  RoundAt round;
  for (const Turn& turn : turns) {
    const std::uint32_t batch = batch_of_round(turn, duty_cycle_ms, deviations);
    if (batch > turn.row->largest) return {0, 0, false};
    const double latency_ms = turn.row->latency_ms[batch - 1];
    round.busy_ms += latency_ms;
    round.latest_ms = std::min(round.latest_ms, turn.slo_ms - latency_ms);
  }
  return round;
}

constexpr double kSlack = 1 + kRoundingSlack;

}  // namespace

std::uint32_t batch_of_round(const Turn& turn, double duty_cycle_ms, double deviations) {
  const Row& row = *turn.row;
  const double mean = turn.rate / row.processes * duty_cycle_ms / 1000 / kSlack;
  const double wanted = deviations > 0 ? mean + deviations * std::sqrt(mean) : mean;
  if (!(wanted <= row.largest)) return row.largest + 1;
  const auto whole = static_cast<std::uint32_t>(wanted);
  std::uint32_t batch = std::max(1U, whole < wanted ? whole + 1 : whole);
  if (row.headroom == nullptr || duty_cycle_ms <= 0) return batch;
  while (batch <= row.largest && requests_held(row, batch, turn.slo_ms, duty_cycle_ms) < mean) {
    ++batch;
  }
  return batch;
}

std::optional<double> least_duty_cycle_ms(std::span<const Turn> turns, double deviations) {
  if (turns.size() > kMostModelsOfGpulet) return std::nullopt;
  double duty_cycle_ms = 0;
  // Ends: the cycle grows only when a batch does, and batches end at their rows' largest.
  while (true) {
    const RoundAt round = round_at(turns, duty_cycle_ms, deviations);
    if (!round.fits) return std::nullopt;
    if (duty_cycle_ms > round.latest_ms * kSlack) return std::nullopt;
    if (round.busy_ms <= duty_cycle_ms) return duty_cycle_ms;
    duty_cycle_ms = round.busy_ms;
  }
}

std::optional<Cycle> tight_cycle(std::span<const Turn> turns) {
  constexpr int kStepsPerDeviation = 2;
  for (int steps = static_cast<int>(kMostDeviations) * kStepsPerDeviation; steps >= 0; --steps) {
    const double deviations = static_cast<double>(steps) / kStepsPerDeviation;
    if (const std::optional<double> duty_cycle_ms = least_duty_cycle_ms(turns, deviations)) {
      return Cycle{*duty_cycle_ms, deviations};
    }
  }
  return std::nullopt;
}

double most_rate_beside(std::span<const Turn> turns, const Row& row, double slo_ms) {
  double most = 0;
  double duty_cycle_ms = 0;
  for (std::uint32_t batch = 1; batch <= row.largest; ++batch) {
    const double own_ms = row.latency_ms[batch - 1];
    // The cycle of the batch before is a lower bound for this one's.
    while (true) {
      const RoundAt round = round_at(turns, duty_cycle_ms, 0);
      const double busy_ms = round.busy_ms + own_ms;
      const double latest_ms = std::min(round.latest_ms, slo_ms - own_ms);
      if (!round.fits || duty_cycle_ms > latest_ms * kSlack) return most;
      if (busy_ms <= duty_cycle_ms) break;
      duty_cycle_ms = busy_ms;
    }
    const double held = requests_held(row, batch, slo_ms, duty_cycle_ms) * row.processes;
    most = std::max(most, held * 1000 / duty_cycle_ms);
  }
  return most;
}

}  // namespace gpulet::schedule
