// The policies that give every model gpulets of its own: greedy-best-fit and guided-self-tuning.
// Pure.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "schedule/candidates.h"
#include "schedule/plan_output.h"
#include "schedule/policies.h"

namespace gpulet::schedule {

// ---- greedy-best-fit: gpulet (ATC 2022), section 2.3
//
// Every model gets the smallest size that handles its rate within its SLO, and the sizes are placed
// on the devices by best fit.
//
// Choices where the paper leaves one:
//  - A rate beyond every size takes gpulets of the size with the highest rate until the rest fits
//    into one.
//  - The batch is the one with the highest rate within the SLO at that size: as long as latency
//    grows less than the batch, the largest that meets the SLO (section 5.2: "the maximal batch
//    size which satisfies SLOs").
//  - Models come in descending order of the share that they need, ties by name: best fit
//    decreasing, the usual form of the heuristic.
//  - Best fit: the open device with the least share left that holds the size. Another device is
//    opened only where none does; among types, the one with the highest rate per percent.
//  - With interference, the smallest size is the one that handles the rate next to its neighbours,
//    which may be larger than alone.
//  - A rate that fits nowhere is served once, by the remaining share that can take most of it.

namespace {

class GreedyFitting {
 public:
  explicit GreedyFitting(PlanContext& context)
      : context_(context), builder_(context), wanted_(context.classes().size()) {}

  PlanBuilder run() {
    for (const std::size_t model : models_by_share(context_)) {
      while (builder_.unplaced(model) > 0 && place(model)) {
      }
      if (builder_.unplaced(model) <= 0) continue;
      if (const auto candidate = largest_share(builder_, model))
        occupy(builder_, model, *candidate);
    }
    return std::move(builder_);
  }

 private:
  bool place(std::size_t model) {
    least_sizes(context_, model, builder_.unplaced(model), &wanted_);
    std::optional<Candidate> candidate =
        first_remaining(builder_, wanted_, [&](std::uint32_t device, std::uint32_t wanted) {
          return candidate_on(device, wanted, model);
        });
    if (!candidate) candidate = best_unopened(builder_, model, wanted_);
    if (!candidate) return false;
    occupy(builder_, model, *candidate);
    return true;
  }

  [[nodiscard]] std::optional<Candidate> candidate_on(std::uint32_t device, std::uint32_t wanted,
                                                      std::size_t model) {
    const BuilderDevice& host = builder_.devices()[device];
    const std::vector<int>& sizes = builder_.class_of(device).sizes;
    const double enough = std::min(builder_.unplaced(model),
                                   context_.curve(model, host.device_class, wanted).max_rate);
    for (std::uint32_t size = wanted; size < sizes.size(); ++size) {
      if (sizes[size] > host.free_percent) break;
      if (builder_.max_rate_of_new(device, size, model) < enough) continue;
      return Candidate{host.device_class, device, size, enough};
    }
    return std::nullopt;
  }

  PlanContext& context_;
  PlanBuilder builder_;
  WantedSizes wanted_;  // of the current model
};

}  // namespace

Plan plan_greedy_best_fit(const PlanInput& input) {
  PlanContext context(input);
  return finish_enlarged(GreedyFitting(context).run());
}

// ---- guided-self-tuning: the baseline of the gpu-let preprint, section 6.1
//
// GSLICE tunes the share of every model on one GPU by feedback, and then the batch by the SLO. The
// baseline gets the profile's latencies and "the optimal partition computed for models" instead of
// searching at run time.
//
// Choices where the papers leave one:
//  - The optimal partition of a model is the knee of its rate over the size (GSLICE sizes at the
//    knee, and so does the preprint's own p_eff). It depends on the profile and the SLO, not on the
//    rate: a model with a low rate gets as large a gpulet as one with a high rate. This is the
//    difference to greedy-best-fit.
//  - The batch is the one with the highest rate within the SLO at that size.
//  - GSLICE has one GPU. Here a model takes gpulets of its size until its rate is placed, on the
//    open device with the least share left that holds one, else on another device. Models come in
//    descending order of rate, as in the preprint.
//  - Once every device is open, the remaining share that serves most of the rest is taken, until
//    none is left.

namespace {

class KneePlacement {
 public:
  explicit KneePlacement(PlanContext& context)
      : context_(context), builder_(context), optimal_(context.classes().size()) {}

  PlanBuilder run() {
    for (const std::size_t model : models_by(context_, Order::heaviest_first, rate_of)) {
      for (std::size_t index = 0; index < optimal_.size(); ++index) {
        optimal_[index] = knee_size(context_, model, index);
      }
      while (builder_.unplaced(model) > 0 && place(model)) {
      }
    }
    return std::move(builder_);
  }

 private:
  bool place(std::size_t model) {
    std::optional<Candidate> candidate =
        first_remaining(builder_, optimal_, [&](std::uint32_t device, std::uint32_t size) {
          return candidate_on(device, size, model);
        });
    if (!candidate) candidate = best_unopened(builder_, model, optimal_);
    if (!candidate) candidate = largest_share(builder_, model);
    if (!candidate) return false;
    occupy(builder_, model, *candidate);
    return true;
  }

  [[nodiscard]] std::optional<Candidate> candidate_on(std::uint32_t device, std::uint32_t size,
                                                      std::size_t model) {
    const double rate = builder_.max_rate_of_new(device, size, model);
    if (rate <= 0) return std::nullopt;
    return Candidate{builder_.devices()[device].device_class, device, size,
                     std::min(rate, builder_.unplaced(model))};
  }

  PlanContext& context_;
  PlanBuilder builder_;
  WantedSizes optimal_;  // of the current model
};

}  // namespace

Plan plan_guided_self_tuning(const PlanInput& input) {
  PlanContext context(input);
  return finish_enlarged(KneePlacement(context).run());
}

}  // namespace gpulet::schedule
