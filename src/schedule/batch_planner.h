// Plans the batches of gpulets that are already placed: device, size and models of each are given.
// Every model first gets the smallest batch that holds its requested rate, and then the largest
// batch that the search below finds.
//
// PlanBuilder and BatchPlanner are the two halves of planning, and share the PlanContext, the duty
// cycles (duty_cycle.h), the pairwise slowdowns and the plan output. They differ in what a gpulet
// assumes of its neighbours. PlanBuilder does not know their final models and batches, so it
// assumes the worst batch that their SLO allows (PlanContext::curve_beside). BatchPlanner knows
// them: it assumes batches up to the planned one, rounded up to a measured batch, so that the SLO
// holds beside partial batches, too. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "gpulet/schedule/plan.h"
#include "schedule/duty_cycle.h"
#include "schedule/plan_context.h"
#include "schedule/plan_output.h"

namespace gpulet::schedule {

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

struct PlacedModel {
  std::uint32_t model = 0;  // index into PlanContext::models
  double requested = 0;     // requests per second
};

struct PlacedGpulet {
  std::uint32_t device = 0;         // index into PlanContext::devices
  std::uint32_t device_class = 0;   // index into PlanContext::classes
  std::uint32_t size = 0;           // index into the class's sizes
  std::vector<PlacedModel> models;  // ascending, none twice
};

// Tracks the capacity of the devices that a placement uses. `context` outlives the object.
class DeviceUsage {
 public:
  explicit DeviceUsage(const PlanContext& context) : context_(&context) {}

  // Reserves the gpulet's share, partition and memory and returns null. Where something is missing,
  // reserves nothing and returns the predicate of a sentence about the device: "has no partition
  // left".
  [[nodiscard]] const char* reserve(const PlacedGpulet& gpulet);

 private:
  struct Used {
    std::uint32_t partitions = 0;
    int percent = 0;
    double memory_mb = 0;
  };
  const PlanContext* context_;
  std::map<std::uint32_t, Used> used_;  // by index into PlanContext::devices
};

// Sorts gpulets into the order of a plan: by device, descending size, models.
void sort_gpulets(const PlanContext& context, std::vector<PlacedGpulet>* gpulets);

// Plans the batches of the gpulets of one device.
class DeviceBatches {
 public:
  // A model in its gpulet.
  struct ModelSlot {
    std::uint32_t gpulet = 0;  // index into the given gpulets
    std::uint32_t batch = 0;
    double requested = 0;
    BatchSlot planned;  // rate 0: the model is not served
    ModelAtSize place;
    const LatencyCurve* alone = nullptr;  // without neighbours
    // Where gpulets slow each other down:
    std::span<const std::uint32_t> breakpoints;  // measured batches, ascending
    std::size_t assumed = 0;  // neighbours assume batches up to this breakpoint (index)
    SlowedCurve slowed;       // beside the batches that it assumes of them
  };

  // `gpulets` are on one device, each with a model; `context` outlives the object.
  DeviceBatches(PlanContext& context, std::span<const PlacedGpulet> gpulets);
  // The slots point into the memory of slots_, which a move keeps.
  DeviceBatches(const DeviceBatches&) = delete;
  DeviceBatches& operator=(const DeviceBatches&) = delete;
  DeviceBatches(DeviceBatches&&) noexcept = default;
  DeviceBatches& operator=(DeviceBatches&&) noexcept = default;
  ~DeviceBatches() = default;

  // Plans the smallest batches that hold the requested rates.
  //
  // Batches next door slow a gpulet down, and slower batches have to be larger. So every slot
  // starts with the smallest batch and grows as the others require, until none changes. Batches
  // only grow and end at max_batch, so this terminates, and no smaller batches hold the same rates.
  //
  // Where a gpulet cannot serve everything, each of its models in turn gets the most that fits.
  // Models whose neighbours leave them no time within the SLO are not served, those of the first
  // gpulets first.
  void plan_min_batches();
  // Changes a requested rate, effective with the next plan_min_batches().
  void request(std::size_t slot, double rate) { slots_[slot].requested = rate; }
  // Increases each batch in turn to the largest with which every round of the device still holds.
  // Repeats while a batch grows, at most kMaxPasses times. REQUIRES: plan_min_batches() was called.
  void grow_batches();
  static constexpr int kMaxPasses = 4;

  // By gpulet, then by model.
  [[nodiscard]] const std::vector<ModelSlot>& slots() const { return slots_; }
  // The sum of the latencies of a gpulet's batches, which is its duty cycle.
  [[nodiscard]] double round_ms(std::size_t gpulet) const;

 private:
  void look_up_slowdowns(SlowdownTables& tables);
  [[nodiscard]] std::span<ModelSlot> slots_of(std::size_t gpulet);
  [[nodiscard]] std::span<const ModelSlot> slots_of(std::size_t gpulet) const;

  // Updates curves for the assumed batches of the neighbours.
  void refresh(std::size_t gpulet);
  void refresh(ModelSlot& slot);
  void refresh_others(std::size_t gpulet);
  // Plans the smallest batches of a gpulet. Returns whether its neighbours have to assume larger
  // ones.
  bool raise_batches(std::size_t gpulet);
  // Reduces rates to those that the gpulet can serve. Returns its shortest round.
  [[nodiscard]] Round fit_rates(std::size_t gpulet);
  // Whether a batch of the slot holds its rate in a round of that length.
  [[nodiscard]] bool keeps_up(const ModelSlot& slot, std::uint32_t batch, double round_ms) const;
  // Whether the gpulet's batches still hold their rates and meet their SLOs.
  [[nodiscard]] bool holds(std::size_t gpulet) const;

  // Returns whether the slot's batch has grown.
  bool grow_batch(std::size_t slot);
  [[nodiscard]] std::uint32_t largest_within(const ModelSlot& slot, std::uint32_t max_batch) const;
  [[nodiscard]] bool neighbours_tolerate(std::size_t slot, std::size_t breakpoint);

  bool interferes_ = false;
  std::vector<ModelSlot> slots_;
  std::vector<std::size_t> first_slot_;          // of every gpulet, then the end
  std::vector<const SlowdownTable*> slowdowns_;  // [own slot * slots + other slot]
  std::vector<BatchSlot> scratch_;               // of the current gpulet
  std::vector<double> at_breakpoints_;           // slowdowns of the current slot
};

class BatchPlanner {
 public:
  // Sorts the gpulets. REQUIRES: DeviceUsage can reserve them all, and each has a model; `context`
  // outlives the object.
  BatchPlanner(PlanContext& context, std::vector<PlacedGpulet> gpulets);

  // As DeviceBatches::plan_min_batches(), for every device.
  void plan_min_batches();
  // Where a model's gpulets do not serve all of its rate, raises the rate of its other gpulets as
  // far as they can without reducing another model's. REQUIRES: plan_min_batches() was called.
  void redistribute();
  // As DeviceBatches::grow_batches(), for every device. REQUIRES: plan_min_batches() was called.
  void grow_batches();

  // Requests per second that are not served, parallel to PlanContext::models; exactly 0 where all
  // are.
  [[nodiscard]] std::vector<double> unplaced() const;
  // The plan, with an empty `policy`. reason(model, rate, devices_used) explains unserved rates.
  template <typename Reason>
  [[nodiscard]] Plan finish(const Reason& reason) const {
    Plan plan;
    plan.gpulets = planned();
    list_unserved(
        *context_, unplaced(),
        [&](std::size_t model, double rate) { return reason(model, rate, plan.devices_used()); },
        &plan);
    return plan;
  }

 private:
  struct SlotPosition {
    std::size_t device = 0;  // index into devices_
    std::size_t slot = 0;
  };
  [[nodiscard]] std::vector<PlannedGpulet> planned() const;
  // Raises the slot's rate by up to `unserved` and returns by how much, or leaves it and returns 0
  // where another rate would fall.
  double raise_rate(const SlotPosition& at, double unserved);

  PlanContext* context_;
  std::vector<PlacedGpulet> gpulets_;
  std::vector<std::size_t> first_gpulet_;  // of every device, then the end
  std::vector<DeviceBatches> devices_;
};

}  // namespace gpulet::schedule
