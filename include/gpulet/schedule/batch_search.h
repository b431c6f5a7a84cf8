// InSS's batch decision: the latency of a queued task (section 4.2, equation 2), the search for a
// model's largest batch (section 5.3, algorithm 1), and both for a whole placement, which gives a
// plan. Where the placement in force still serves every rate with other batches, nothing else has
// to change (section 5.5, case 1: keep_placement). Pure.
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
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

class PlanContext;

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

// A model in a gpulet of its own.
struct ModelPlacement {
  std::uint32_t model = 0;   // index into PlanInput::demands
  std::uint32_t device = 0;  // index into PlanInput::cluster.devices
  Share size;

  friend bool operator==(const ModelPlacement&, const ModelPlacement&) = default;
};

// The batch decision for any number of placements of one input. Caches intermediate results between
// calls. One thread at a time.
class BatchSearch {
 public:
  // REQUIRES: validate(input) is ok; `input` outlives the object.
  explicit BatchSearch(const PlanInput& input);
  ~BatchSearch();
  BatchSearch(const BatchSearch&) = delete;
  BatchSearch& operator=(const BatchSearch&) = delete;

  // Returns a plan that passes check() for any placement, with an empty `policy`. A model without a
  // placement is unserved, and so is the part of its rate that its gpulet cannot serve. Ignores a
  // placement that breaks a rule: on a device outside the cluster, under MIG or beyond max_devices,
  // of an unlisted size, beyond the device's share, partitions or memory, or the second one of a
  // model. Where placements exclude each other, the first by device, descending size and model name
  // wins, whatever the order of `placements`.
  [[nodiscard]] Plan decide(std::span<const ModelPlacement> placements);

 private:
  std::unique_ptr<PlanContext> context_;
  // Indices into the context by index into the input; empty without a rate, or outside the cluster.
  std::vector<std::optional<std::uint32_t>> model_of_demand_;
  std::vector<std::optional<std::uint32_t>> device_of_input_;
};

// Section 5.5, case 1: serves the demand with the gpulets of input.current, each on its device,
// with its size and its models, but with other batches. Divides rates as they are divided now;
// where a gpulet is too small for its part, the other gpulets of the model serve more, as far as
// they can. Drops gpulets whose models have no demand. Returns a plan that serves everything and
// passes check(), with an empty `policy`; nothing where there is none (case 2) or no plan in force.
// REQUIRES: validate(input) is ok.
[[nodiscard]] std::optional<Plan> keep_placement(const PlanInput& input);

}  // namespace gpulet::schedule
