// Guided self-tuning, the baseline of the gpu-let preprint, section 6.1: GSLICE, which tunes the
// share of every model on one GPU by feedback and then the batch by the SLO, is handed the
// profile's latencies and "the optimal partition computed for models" instead of searching at run
// time. Spatial sharing only: one model in a gpulet.
//
// Choices where the papers leave one:
//  - The optimal partition of a model is the knee of its rate over the size (GSLICE sizes at the
//    knee; so does the preprint's own p_eff). It follows from the profile and the SLO, not from the
//    rate: a model with a low rate gets as large a gpulet as one with a high rate. That is what
//    sets it apart from greedy best fit.
//  - The batch is the best one within the SLO at that size.
//  - GSLICE knows one GPU. Here a model takes gpulets of its size until its rate has a place, on
//  the
//    open device with the least share left that holds one, else on another device. Models come in
//    descending order of rate, as in the preprint.
//  - Tuning ends in a smaller share where the knee is not to be had: once every device is open, the
//    remaining share that serves most of the rest is taken, until none is left.
#include "schedule/guided_self_tuning.h"

#include <algorithm>
#include <optional>

#include "schedule/finish.h"
#include "schedule/spot.h"

namespace gpulet::schedule {
namespace {

class Tuning {
 public:
  explicit Tuning(Problem& problem)
      : problem_(problem), draft_(problem), optimal_(problem.classes().size()) {}

  Draft run() {
    for (const std::size_t model : models_by(problem_, Order::heaviest_first, rate_of)) {
      for (std::size_t index = 0; index < optimal_.size(); ++index) {
        optimal_[index] = knee_size(problem_, model, index);
      }
      while (draft_.left(model) > 0 && place(model)) {
      }
    }
    return std::move(draft_);
  }

 private:
  bool place(std::size_t model) {
    std::optional<Spot> spot = best_remaining(model);
    if (!spot) spot = best_unopened(draft_, model, optimal_);
    if (!spot) spot = largest_share(draft_, model);
    if (!spot) return false;
    occupy(draft_, model, *spot);
    return true;
  }

  [[nodiscard]] std::optional<Spot> best_remaining(std::size_t model) {
    BestFitWalk walk(draft_, optimal_, &scratch_);
    while (const auto device = walk.next()) {
      const std::uint32_t device_class = draft_.devices()[*device].device_class;
      const double rate = draft_.most_rate_of_new(*device, *optimal_[device_class], model);
      if (rate <= 0) continue;
      return Spot{{device_class, device, *optimal_[device_class]},
                  std::min(rate, draft_.left(model))};
    }
    return std::nullopt;
  }

  Problem& problem_;
  Draft draft_;
  WantedSizes optimal_;  // of the model at hand
  BestFitWalk::Scratch scratch_;
};

}  // namespace

Plan GuidedSelfTuning::plan(const PlanInput& input) const {
  Problem problem(input);
  Draft draft = Tuning(problem).run();
  draft.use_spare_share();
  return finish(name(), draft);
}

}  // namespace gpulet::schedule
