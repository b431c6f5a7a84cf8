// InSS' batch decision: what a task waits and runs for (section 4.2, equation 2), the search for a
// model's largest batch (section 5.3, algorithm 1), and both together for a whole placement, which
// gives a plan. Where the placement in force still serves every rate, that is all a change of rates
// asks for (section 5.5, case 1: keep_placement); a policy decides anew only where it does not.
//
// What this project's rules make of algorithm 1 (docs/scheduling.md, "The largest batch"):
//  - Latencies are the profile's, with the slowdown by the neighbours and the margin.
//  - The constraint of the SLO (4b) is equation 2 for the first request of a batch, which waits
//    longest: for a round that has just begun, and until the batch is full.
//  - The throughput of a batch (4c) is that of a gpulet that runs one such round after the other,
//    less the headroom that random arrivals need. Its duty cycle is the least: the round itself.
//  - A batch that arrivals do not fill in time is of no use, but a smaller one may leave too little
//    headroom: then the smallest that keeps up is taken.
//
// Slips of the printed algorithm, and what its text says instead: the flag is set where a
// constraint is broken (line 7), though it means that a batch was found; and a batch that does not
// keep up ends the search (line 10), as if no larger one did, though throughput mostly rises with
// the batch and, with measured latencies or headroom, may do either. Here the search halves over
// what does rise with the batch, memory and time, and walks down from there to the first that keeps
// up: the largest that keeps everything. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// A request as it comes into its queue.
struct QueuedTask {
  std::uint32_t queued = 1;  // requests that wait, this one included
  std::uint32_t batch = 1;   // that they are run in
  double rate = 0;           // requests per second that are yet to come
  double remaining_ms = 0;   // of what the gpulet is running
  double execution_ms = 0;   // of one batch
};

// Equation 2: from the request's arrival to its result. Infinite where its batch is never full.
// REQUIRES: batch > 0.
[[nodiscard]] double task_latency_ms(const QueuedTask& task);

// Algorithm 1 for one model: the largest batch of 1..`most` for which `fits(batch)` and
// `keeps_up(batch)`; nothing where there is none. REQUIRES: what does not fit a batch fits no
// larger one. Of keeps_up nothing is asked. Asks `fits` about log2(most) times.
template <typename Fits, typename KeepsUp>
[[nodiscard]] std::optional<std::uint32_t> search_batch(std::uint32_t most, const Fits& fits,
                                                        const KeepsUp& keeps_up) {
  std::uint32_t low = 0;  // the largest that is known to fit
  std::uint32_t high = most;
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

// Where a model runs: in a gpulet of its own.
struct ModelPlace {
  std::uint32_t model = 0;   // index in PlanInput::demands
  std::uint32_t device = 0;  // index in PlanInput::cluster.devices
  Share size;

  friend bool operator==(const ModelPlace&, const ModelPlace&) = default;
};

// The batch decision for any number of placements of one input. Remembers what it worked out from
// one to the next. One thread at a time.
class BatchSearch {
 public:
  // REQUIRES: validate(input) is ok; `input` outlives it.
  explicit BatchSearch(const PlanInput& input);
  ~BatchSearch();
  BatchSearch(const BatchSearch&) = delete;
  BatchSearch& operator=(const BatchSearch&) = delete;

  // A plan that passes check(), whatever the placement is; without the name of a policy. A model
  // without a place is unserved, and so is what a place does not hold of its rate. A place that the
  // rules do not allow counts as none: of a device that is not in the cluster, or is divided by
  // MIG, or beyond max_devices, of a size that is not listed, beyond the device's share, partitions
  // or memory, or the second of a model. Of several that do not fit together the later ones by
  // device, falling size and model's name are left out, whatever the order of `places`.
  [[nodiscard]] Plan decide(std::span<const ModelPlace> places);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Section 5.5, case 1: input.current's gpulets, each where it is, as large as it is and with the
// models that it has, serve the demand of `input` with other batches, rates divided as they are now
// and, where one gpulet is too small for its part, as the others of the model have room. Gpulets
// whose models nobody demands any more are left out. A plan that serves everything and passes
// check(), without the name of a policy; nothing where there is none (case 2) or no plan in force.
// REQUIRES: validate(input) is ok.
[[nodiscard]] std::optional<Plan> keep_placement(const PlanInput& input);

}  // namespace gpulet::schedule
