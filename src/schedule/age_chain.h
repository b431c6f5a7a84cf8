// The chain of ages: which fraction of a model slot's requests is late by chance.
//
// A slot serves its requests in order of arrival, all with the same SLO, and the arrivals behind
// the oldest request are Poisson whatever happened before. So the age of the oldest request when a
// batch starts is the whole state of the slot: a Markov chain in one dimension. Its stationary
// distribution gives the fraction of requests that the dispatcher drops because no batch could
// serve them in time (docs/scheduling.md, "Random arrivals"). Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gpulet::schedule {

// A model slot in its gpulet. All times have one unit, which is the caller's choice.
struct SlotQueue {
  double rate = 0;  // requests per unit of time
  // [n]: the mean time from the start of a batch of n requests to the start of the slot's next
  // batch; [0]: between two turns of the slot without a batch. Never decreases with n. The largest
  // batch is its size - 1.
  std::span<const double> cycle;
  double cycle_deviation = 0;  // standard deviation of these times
  // [n - 1]: the age of the oldest request up to which the dispatcher sends a batch of n. Never
  // increases with n.
  std::span<const double> oldest;
};

// The fraction of the requests that are dropped, 0 to 1. `cells`: of the grid of ages; the work is
// of the order of its third power (32: some tens of microseconds). REQUIRES: a batch of at least 1,
// and positive cycles.
[[nodiscard]] double late_fraction(const SlotQueue& slot, std::size_t cells = 32);

}  // namespace gpulet::schedule
