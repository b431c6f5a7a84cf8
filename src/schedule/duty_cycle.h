// The mathematics of a gpulet's rounds (docs/scheduling.md), shared by all policies and not used by
// check(): latency curves, the random arrivals that a batch holds, and the duty cycle that a set of
// models needs. Plain values that point into the PlanContext they came from. Pure; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
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

// How many requests a round may bring on average so that 99 % of Poisson arrivals meet their SLO.
//
// A gpulet that works without pause is a queue served in batches. While a round runs, N requests
// arrive, Poisson with mean m = rate * duty cycle; the next round takes up to b of them; a round
// without arrivals is followed by one that starts with the next arrival. So a round has m + exp(-m)
// requests on average. The SLO lets a request wait k = floor((SLO - exec) / duty cycle) rounds,
// including the round in which it arrives. With k = 1, the requests beyond b are late:
//
//     E[(N - b)+] / (m + exp(-m))
//
// With more rounds to wait, a late request must also find (k - 1) b others ahead of it, which has a
// probability of about exp(-t (k - 1) b), where t > 0 solves m (exp(t) - 1) = t b (the
// Cramer-Lundberg exponent of the queue). The product is within a tenth of the simulated queue for
// k <= 3 and on the safe side beyond (docs/scheduling.md, "Random arrivals").
class HeadroomTable {
 public:
  HeadroomTable();

  // The highest mean of requests per round that batches of `batch` can hold where a request may
  // wait `rounds` rounds; 0 below one round. Increases with both. Beyond the table's last batch the
  // utilisation of that batch applies, beyond its last number of rounds that number: both are on
  // the safe side.
  [[nodiscard]] double mean(std::uint32_t batch, double rounds) const;

 private:
  static constexpr std::size_t kBatches = 64;
  static constexpr std::size_t kRounds = 6;
  std::array<std::array<double, kBatches>, kRounds> means_{};
};

// The table for `headroom`, which lives as long as the program; null for Headroom::none, where a
// batch of b holds b requests.
[[nodiscard]] const HeadroomTable* headroom_table(Headroom headroom);

// The latencies of one model at one size of one device class, alone on the device or next to
// certain neighbours.
//
// Latencies never fall as the batch grows: where the measured ones do (noise), the latency of the
// smaller batch applies, because a round may always bring less than a full batch. This makes the
// mathematics below exact, and the measured latency that a plan states at most the assumed one.
//
// Batches end before the first that takes more than half the SLO: in every round the duty cycle is
// at least the batch's own latency, and both together must be within the SLO.
struct LatencyCurve {
  const double* latency_ms = nullptr;       // [batch - 1], including margin and slowdown
  const double* slowdown = nullptr;         // [batch - 1], by the neighbours; null: 1
  const HeadroomTable* headroom = nullptr;  // null: a batch of b holds b requests
  std::uint32_t max_batch = 0;              // 0: no batch meets the SLO at this size
  // Processes of the gpulet (Device::processes_per_instance). Each has these latencies and serves
  // an equal part of the rate.
  std::uint32_t processes = 1;
  double max_rate = 0;        // requests per second of the model alone in its gpulet
  double min_request_ms = 0;  // gpulet time per request at its best batch: a lower bound
};

// A curve next to neighbours, with the arrays that it points into.
struct SlowedCurve {
  LatencyCurve curve;
  std::vector<double> latency_ms;
  std::vector<double> slowdown;
};

// The highest mean of requests per round that a batch holds at a duty cycle; 0 where the SLO leaves
// no time for the round.
[[nodiscard]] inline double requests_held(const LatencyCurve& curve, std::uint32_t batch,
                                          double slo_ms, double duty_cycle_ms) {
  if (curve.headroom == nullptr) return batch;
  const double waiting_ms = (slo_ms - curve.latency_ms[batch - 1]) * (1 + kRoundingSlack);
  return curve.headroom->mean(batch, waiting_ms / duty_cycle_ms);
}

// No batch that takes longer is of use (LatencyCurve). Includes a quarter of the slack that the
// duty cycle allows for the sum of both halves.
[[nodiscard]] constexpr double longest_useful_ms(double slo_ms) {
  return slo_ms / 2 * (1 + kRoundingSlack / 4);
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

// The smallest batch that holds the arrivals of a round (requests_held) plus `deviations` standard
// deviations of a Poisson stream; above curve->max_batch where no batch does. Never decreases as
// the duty cycle grows: the round brings more requests, and fewer of them can wait.
[[nodiscard]] std::uint32_t batch_for_cycle(const BatchSlot& slot, double duty_cycle_ms,
                                            double deviations = 0);

// The shortest duty cycle at which all slots keep the rules with such batches. Empty where none
// does, or where there are more slots than a gpulet may have models (kMostModelsOfGpulet).
//
// A longer cycle needs larger batches, which run longer, and leaves less of every SLO. So the
// shortest cycle that holds its own round is the best one for every rule at once: the least fixed
// point of d = sum of latencies at d, reached by iterating from 0.
[[nodiscard]] std::optional<double> min_duty_cycle_ms(std::span<const BatchSlot> slots,
                                                      double deviations = 0);

// The duty cycle that a plan uses. With the shortest cycle a batch is just large enough for the
// mean, and every burst leaves a queue behind. This one is the shortest whose batches also hold
// `deviations` standard deviations of a Poisson stream, for as many deviations as the rules allow,
// up to kMaxDeviations; beyond that a longer cycle only costs latency.
inline constexpr double kMaxDeviations = 3;
struct DutyCycle {
  double duty_cycle_ms = 0;
  double deviations = 0;
};
[[nodiscard]] std::optional<DutyCycle> burst_tolerant_cycle(std::span<const BatchSlot> slots);

// The highest rate at which another model, with that curve and SLO, fits next to the slots; 0 where
// it does not fit. For each batch of the newcomer the shortest cycle gives the highest rate.
// Without slots it is curve.max_rate.
[[nodiscard]] double max_rate_beside(std::span<const BatchSlot> slots, const LatencyCurve& curve,
                                     double slo_ms);

}  // namespace gpulet::schedule
