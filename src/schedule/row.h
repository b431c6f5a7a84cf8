// What a policy knows of one model on one size of a device. Plain values that point into the
// Problem they came from.
#pragma once

#include <cstdint>

#include "schedule/headroom.h"

namespace gpulet::schedule {

// Rates are compared with this relative slack: what is left of a demand below it is rounding, not
// load. Far below check()'s tolerance.
inline constexpr double kRoundingSlack = 1e-9;

// One model on one size of one device class, alone on the device or beside certain neighbours.
//
// Latencies never fall as the batch grows: where the measured ones do (noise), the smaller batch's
// counts on, because a round may always bring less than a full batch. That makes the mathematics of
// round.h exact, and what a plan states (the measured latency) at most what was reckoned with.
//
// Batches are kept up to the first that takes more than half the SLO: in every round, shared or
// not, the duty cycle is at least the batch's own latency, and both together must be within the
// SLO.
struct Row {
  const double* latency_ms = nullptr;       // [batch - 1], margin and slowdown included
  const double* slowdown = nullptr;         // [batch - 1], by the neighbours; null: 1
  const HeadroomTable* headroom = nullptr;  // null: a batch of b holds b
  std::uint32_t largest = 0;                // 0: no batch meets the SLO at this size
  // Processes of the gpulet side by side, each of which has such latencies and takes an equal part
  // of the rate (Device::processes_per_instance).
  std::uint32_t processes = 1;
  double most_rate = 0;  // requests per second of the model alone in its gpulet (saturating)
  double least_ms = 0;   // gpulet time per request at its best batch: no round can do with less
};

// The highest mean of requests per round that a batch holds at a duty cycle; 0 where the SLO leaves
// no room for the round.
[[nodiscard]] inline double requests_held(const Row& row, std::uint32_t batch, double slo_ms,
                                          double duty_cycle_ms) {
  if (row.headroom == nullptr) return batch;
  const double waiting_ms = (slo_ms - row.latency_ms[batch - 1]) * (1 + kRoundingSlack);
  return row.headroom->mean(batch, waiting_ms / duty_cycle_ms);
}

// No batch above it is of use to anyone (see Row); with a quarter of the slack that round.h allows
// the sum of both halves.
[[nodiscard]] constexpr double longest_useful_ms(double slo_ms) {
  return slo_ms / 2 * (1 + kRoundingSlack / 4);
}

// Fills in most_rate and least_ms from the latencies.
void rate_row(Row* row, double slo_ms);

}  // namespace gpulet::schedule
