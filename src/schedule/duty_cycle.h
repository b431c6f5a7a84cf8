// The mathematics of a gpulet's rounds (docs/scheduling.md), shared by all policies and not used by
// check(): latency curves, the random arrivals that a batch holds, and the duty cycle that a set of
// models needs. Plain values that point into the PlanContext they came from. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// Rates that differ by less than this fraction are equal: an unplaced rest below it is rounding,
// not load. Far below check()'s tolerance.
inline constexpr double kRoundingSlack = 1e-9;

// A gpulet whose load (BuilderGpulet::load) is above this has no feasible round.
inline constexpr double kFullLoad = 1 + kRoundingSlack;

// The latencies of one model at one size of one device class, alone on the device or next to
// certain neighbours.
//
// Latencies never fall as the batch grows: where the measured ones do (noise), the latency of the
// smaller batch applies, because a round may always bring less than a full batch. This makes the
// mathematics below exact, and the measured latency that a plan states at most the assumed one.
//
// Batches end before the first that takes more than half the SLO: in every round the duty cycle is
// at least the batch's own latency, and both together must be within the SLO. With k processes that
// take turns, the SLO has to hold the k-th part of the duty cycle only.
struct LatencyCurve {
  const double* latency_ms = nullptr;  // [batch - 1], including margin and slowdown
  const double* slowdown = nullptr;    // [batch - 1], by the neighbours; null: 1
  std::uint32_t max_batch = 0;         // 0: no batch meets the SLO at this size
  bool random_arrivals = false;        // false: a batch of b holds b requests of a round
  double margin = 1;                   // part of the latencies, but not of their mean
  double cv = 0;                       // coefficient of variation of the latencies
  // Processes of the gpulet (Device::processes_per_instance). Each has these latencies and serves
  // an equal part of the rate.
  std::uint32_t processes = 1;
  // Whether the model must be the only one of the gpulet, because only processes of one model were
  // measured together. They take batches from one queue in turns (docs/scheduling.md, "Several
  // processes").
  bool exclusive = false;
  double max_rate = 0;        // requests per second of the model alone in its gpulet
  double min_request_ms = 0;  // gpulet time per request at its best batch: a lower bound

  // How many batches of the gpulet start in the time of one.
  [[nodiscard]] std::uint32_t turns() const { return exclusive ? processes : 1; }
};

// A curve next to neighbours, with the arrays that it points into.
struct SlowedCurve {
  LatencyCurve curve;
  std::vector<double> latency_ms;
  std::vector<double> slowdown;
};

// No batch that takes longer is of use (LatencyCurve). Includes a quarter of the slack that the
// duty cycle allows for the sum of both halves.
[[nodiscard]] constexpr double longest_useful_ms(double slo_ms, std::uint32_t turns = 1) {
  return slo_ms / (1 + 1.0 / turns) * (1 + kRoundingSlack / 4);
}

// Sets max_rate and min_request_ms from the latencies.
void rate_curve(LatencyCurve* curve, double slo_ms);

// Slows `alone` by slowdown_of(batch). Leaves max_rate and min_request_ms as they are alone.
template <typename SlowdownOf>
void slow_down(const LatencyCurve& alone, double slo_ms, const SlowdownOf& slowdown_of,
               SlowedCurve* slowed) {
  slowed->latency_ms.resize(alone.max_batch);
  slowed->slowdown.resize(alone.max_batch);
  const double limit_ms = longest_useful_ms(slo_ms);
  double longest_ms = 0;
  std::uint32_t batch = 1;
  for (; batch <= alone.max_batch; ++batch) {
    const double slowdown = slowdown_of(batch);
    longest_ms = std::max(longest_ms, alone.latency_ms[batch - 1] * slowdown);
    if (!(longest_ms <= limit_ms)) break;
    slowed->latency_ms[batch - 1] = longest_ms;
    slowed->slowdown[batch - 1] = slowdown;
  }
  slowed->curve = alone;
  slowed->curve.latency_ms = slowed->latency_ms.data();
  slowed->curve.slowdown = slowed->slowdown.data();
  slowed->curve.max_batch = batch - 1;
}

// One model's batch in the rounds of a gpulet.
struct BatchSlot {
  const LatencyCurve* curve = nullptr;  // at the gpulet's size
  double rate = 0;                      // requests per second
  double slo_ms = 0;
  std::uint32_t model = 0;  // index into PlanContext::models
};

// The mean rates that a slot serves, by the rules of docs/scheduling.md ("Random arrivals"):
//
// A slot's cycle is the mean time from the start of a full batch to the start of its next batch:
// its own full batch, and of every other slot the mean batch that the cycle brings. A batch holds
// the arrivals of a cycle if few enough of them are late by chance (requests_held). Without random
// arrivals every cycle is the whole duty cycle, and a batch of b holds b.

// The mean time, in ms, of the slot's batches in cycles that bring it that many requests on
// average. REQUIRES: curve.max_batch > 0.
[[nodiscard]] double mean_busy_ms(const LatencyCurve& curve, double arrivals);

// Whether a batch of the slot at that index holds its rate beside the other slots.
[[nodiscard]] bool batch_holds(std::span<const BatchSlot> slots, std::size_t at,
                               std::uint32_t batch, double duty_cycle_ms);

// The shortest round in which every slot keeps the rules: each batch is the smallest that holds its
// rate and `deviations` standard deviations of the Poisson arrivals of its cycle. Empty where no
// round does, or where there are more slots than a gpulet may have models (kMostModelsOfGpulet).
struct Round {
  double duty_cycle_ms = 0;
  std::vector<std::uint32_t> batches;  // parallel to the slots
};
[[nodiscard]] std::optional<Round> shortest_round(std::span<const BatchSlot> slots,
                                                  double deviations = 0);

// Whether there is such a round, and its duty cycle. Allocates nothing.
[[nodiscard]] std::optional<double> min_duty_cycle_ms(std::span<const BatchSlot> slots,
                                                      double deviations = 0);

// The round that a plan uses. In the shortest one a batch is just large enough for the mean, and
// every burst leaves a queue behind. This one is the shortest whose batches also hold `deviations`
// standard deviations of a Poisson stream, for as many deviations as the rules allow, up to
// kMaxDeviations; beyond that a longer round only costs latency.
inline constexpr double kMaxDeviations = 3;
struct TolerantRound {
  Round round;
  double deviations = 0;
};
[[nodiscard]] std::optional<TolerantRound> burst_tolerant_round(std::span<const BatchSlot> slots);

// The highest rate at which another model, with that curve and SLO, fits next to the slots; 0 where
// it does not fit. Without slots it is curve.max_rate. A rate below `least` or above `most` is of
// no use to the caller: below it may be 0, which takes less time, and it is never above. With
// random arrivals a lower rate need not fit, though it nearly always does: a longer cycle varies by
// a smaller part.
[[nodiscard]] double max_rate_beside(std::span<const BatchSlot> slots, const LatencyCurve& curve,
                                     double slo_ms, double least = 0,
                                     double most = std::numeric_limits<double>::infinity());

}  // namespace gpulet::schedule
