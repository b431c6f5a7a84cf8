// One round of a gpulet: the models that take turns in it, and the duty cycle they need. This is
// the mathematics of docs/scheduling.md, used by all policies (and not by check()). Pure; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "schedule/problem.h"

namespace gpulet::schedule {

// One model's turn.
struct Turn {
  const Row* row = nullptr;  // of the gpulet's size
  double rate = 0;           // requests per second
  double slo_ms = 0;
  std::uint32_t model = 0;  // index in Problem::models
};

// The smallest batch that holds what arrives in a round (requests_held), and `deviations` standard
// deviations of a Poisson stream more than the mean; above row->largest where no batch does. Never
// falls as the duty cycle grows: the round brings more, and leaves fewer of them to wait for.
[[nodiscard]] std::uint32_t batch_of_round(const Turn& turn, double duty_cycle_ms,
                                           double deviations = 0);

// The least duty cycle at which all turns keep the rules with such batches, or nothing where none
// does, or where there are more turns than a gpulet may have models (kMostModelsOfGpulet).
//
// A longer cycle needs larger batches, which run longer, and leaves less of every SLO: so the
// shortest cycle that holds its own round is the best one for every rule at once. It is the least
// fixed point of d = sum of latencies at d, and climbing to it from below tries every duty cycle
// that matters.
[[nodiscard]] std::optional<double> least_duty_cycle_ms(std::span<const Turn> turns,
                                                        double deviations = 0);

// A duty cycle with room for bursts: the least whose batches hold the requests of a round and
// `deviations` standard deviations of a Poisson stream more, for as many deviations as the rules
// leave room for, up to kMostDeviations. With the mean alone a batch would be just large enough,
// and every burst would leave a queue behind; beyond the most a longer cycle only costs latency.
inline constexpr double kMostDeviations = 3;
struct Cycle {
  double duty_cycle_ms = 0;
  double deviations = 0;
};
[[nodiscard]] std::optional<Cycle> tight_cycle(std::span<const Turn> turns);

// The highest rate at which one more model, with that row and SLO, fits beside the turns; 0 where
// none does. For each batch of the newcomer the shortest cycle gives the highest rate. Without
// turns it is row.most_rate.
[[nodiscard]] double most_rate_beside(std::span<const Turn> turns, const Row& row, double slo_ms);

}  // namespace gpulet::schedule
