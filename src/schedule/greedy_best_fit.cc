// Greedy best fit, gpulet (ATC 2022) section 2.3: every model gets the smallest size that handles
// its rate within its SLO, and the sizes are put on the devices by best fit. No model ever shares a
// gpulet with another.
//
// Choices where the paper leaves one:
//  - A rate beyond every size takes gpulets of the size with the highest rate until the rest is
//    within one.
//  - The batch is the one with the highest rate within the SLO at that size: for latencies that
//    grow less than the batch, which is all that batching is for, the largest that meets it
//    (section 5.2: "the maximal batch size which satisfies SLOs").
//  - Models come in descending order of the share that they need, ties by name: best fit
//  decreasing,
//    the usual form of the heuristic.
//  - Best fit: the open device with the least share left that holds the size; another device is
//    opened only where none does. Of several types, the one with the highest rate per percent.
//  - With interference the smallest size is that which handles the rate beside its neighbours, and
//    may be a larger one there than alone.
//  - What fits nowhere is served by the remaining share that takes the most of it, once.
#include "schedule/greedy_best_fit.h"

#include <algorithm>
#include <optional>

#include "schedule/finish.h"
#include "schedule/spot.h"

namespace gpulet::schedule {
namespace {

class Fitting {
 public:
  explicit Fitting(Problem& problem)
      : problem_(problem), draft_(problem), wanted_(problem.classes().size()) {}

  Draft run() {
    for (const std::size_t model : models_by_share(problem_)) {
      while (draft_.left(model) > 0 && place(model)) {
      }
      if (draft_.left(model) <= 0) continue;
      if (const auto spot = largest_share(draft_, model)) occupy(draft_, model, *spot);
    }
    return std::move(draft_);
  }

 private:
  bool place(std::size_t model) {
    least_sizes(problem_, model, draft_.left(model), &wanted_);
    std::optional<Spot> spot = best_remaining(model);
    if (!spot) spot = best_unopened(draft_, model, wanted_);
    if (!spot) return false;
    occupy(draft_, model, *spot);
    return true;
  }

  [[nodiscard]] std::optional<Spot> best_remaining(std::size_t model) {
    BestFitWalk walk(draft_, wanted_, &scratch_);
    while (const auto device = walk.next()) {
      const std::uint32_t device_class = draft_.devices()[*device].device_class;
      const std::vector<int>& sizes = problem_.classes()[device_class].sizes;
      const double enough = std::min(
          draft_.left(model), problem_.row(model, device_class, *wanted_[device_class]).most_rate);
      for (std::uint32_t size = *wanted_[device_class]; size < sizes.size(); ++size) {
        if (sizes[size] > draft_.devices()[*device].free_percent) break;
        if (draft_.most_rate_of_new(*device, size, model) < enough) continue;
        return Spot{{device_class, device, size}, enough};
      }
    }
    return std::nullopt;
  }

  Problem& problem_;
  Draft draft_;
  WantedSizes wanted_;  // of the model at hand
  BestFitWalk::Scratch scratch_;
};

}  // namespace

Plan GreedyBestFit::plan(const PlanInput& input) const {
  Problem problem(input);
  Draft draft = Fitting(problem).run();
  draft.use_spare_share();
  return finish(name(), draft);
}

}  // namespace gpulet::schedule
