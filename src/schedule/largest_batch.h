// The largest batch of a model in its gpulet: the latency of a queued task (InSS, section 4.2,
// equation 2) and the search that it bounds (section 5.3, algorithm 1). Pure; any thread.
//
// How algorithm 1 translates to this project's rules (docs/scheduling.md, "The largest batch"):
//  - Latencies are the profile's, with slowdown and margin.
//  - The SLO constraint (4b) is equation 2 for the first request of a batch, which waits longest:
//    for a round that has just begun, and until the batch is full.
//  - The throughput constraint (4c) is that of a gpulet that runs such rounds back to back, less
//    the headroom that random arrivals need. The duty cycle is the round itself.
//  - A batch that does not fill in time is useless, but a smaller one may leave too little
//    headroom. The search then takes the smallest batch that keeps up.
//
// Two errors of the printed algorithm are corrected. Line 7 sets the flag where a constraint is
// broken, though the flag means that a batch was found. Line 10 ends the search at a batch that
// does not keep up, though throughput mostly rises with the batch and, with measured latencies or
// headroom, may do either. Here the search bisects over memory and time, which are monotonic in the
// batch, and then walks down to the first batch that keeps up: the largest that meets every
// constraint.
#pragma once

#include <cstdint>
#include <optional>

namespace gpulet::schedule {

// A request when it enters its queue.
struct QueuedTask {
  std::uint32_t queued = 1;  // requests in the queue, including this one
  std::uint32_t batch = 1;   // requests per batch
  double rate = 0;           // further requests per second
  double remaining_ms = 0;   // until the gpulet's current batch ends
  double execution_ms = 0;   // of one batch
};

// Equation 2: the time from the request's arrival to its result. Infinite where its batch never
// fills. REQUIRES: batch > 0.
[[nodiscard]] double task_latency_ms(const QueuedTask& task);

// Algorithm 1 for one model: the largest batch in 1..max_batch with `fits(batch)` and
// `keeps_up(batch)`, or nothing. REQUIRES: where a batch does not fit, no larger one does;
// keeps_up() may be any predicate. Calls `fits` about log2(max_batch) times.
template <typename Fits, typename KeepsUp>
[[nodiscard]] std::optional<std::uint32_t> search_batch(std::uint32_t max_batch, const Fits& fits,
                                                        const KeepsUp& keeps_up) {
  std::uint32_t low = 0;  // the largest batch known to fit
  std::uint32_t high = max_batch;
  while (low < high) {
    const std::uint32_t middle = high - (high - low) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  for (std::uint32_t batch = low; batch > 0; --batch) {
    if (keeps_up(batch)) return batch;
  }
  return std::nullopt;
}

}  // namespace gpulet::schedule
