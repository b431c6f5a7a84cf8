// The chain of ages: which fraction of a model slot's requests is late by chance.
//
// A slot serves its requests in order of arrival, all with the same SLO, and the arrivals behind
// the oldest request are Poisson whatever happened before. So the age of the oldest request when a
// batch starts is the whole state of the slot: a Markov chain in one dimension. Its stationary
// distribution gives the fraction of requests that the dispatcher drops because no batch could
// serve them in time (docs/scheduling.md, "Random arrivals"). Pure; any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace gpulet::schedule {

// A time that occurs with a probability.
struct TimePoint {
  double time = 0;
  double probability = 0;
};

// A model slot in its gpulet. All times have one unit, which is the caller's choice.
struct SlotQueue {
  // What remains in the queue when a batch starts: the age of the next request, or kNone.
  static constexpr double kNone = -1;

  double rate = 0;  // requests per unit of time
  // [n - 1]: the age of the oldest request up to which the dispatcher sends a batch of n. Never
  // increases with n. Its size is the largest batch.
  std::span<const double> oldest;
  // A request older than this when a batch starts is dropped: with more than `backlog` waiting, and
  // otherwise. Infinite: oldest.back() and oldest.front(). 0: the largest batch.
  std::size_t backlog = 0;
  double oldest_in_backlog = std::numeric_limits<double>::infinity();
  double oldest_kept = std::numeric_limits<double>::infinity();
  // Appends the distribution of the time from the start of a batch of n, whose oldest request has
  // that age, to the start of the slot's next batch. `left`: the age of the next request, or kNone.
  std::function<void(std::size_t n, double age, double left, std::vector<TimePoint>& times)> cycle;
  double longest_cycle = 0;  // none of these times is longer
  // The age, when its batch starts, of a request that arrives at a slot whose turn passed. Empty:
  // its batch starts at once.
  std::span<const TimePoint> idle;
  // The mean number of requests of such a batch that end late although they started in time.
  // Empty: none.
  std::function<double(std::size_t n, double age)> late_in_batch{};
};

struct SlotOutcome {
  double late = 0;              // fraction of the requests that are dropped or end late, 0 to 1
  std::vector<double> batches;  // [n]: part of the batches that hold n requests
  double left_over = 0;         // part of the batches that leave requests waiting
};

// `cells`: of the grid of ages; the work is of the order of its third power (32: some tens of
// microseconds). REQUIRES: a batch of at least 1, a positive rate and positive cycles.
[[nodiscard]] SlotOutcome solve_queue(const SlotQueue& slot, std::size_t cells = 32);

}  // namespace gpulet::schedule
