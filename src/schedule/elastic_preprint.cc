// Elastic partitioning of the gpu-let preprint, section 4.3, algorithm 1. Models in descending
// order of their rate; each takes gpulets of size min(p_eff, p_req) by best fit until its rate has
// a place; before one is taken, its share of the rate is offered to every gpulet allocated so far,
// and where one can share its time the new split is reverted.
//
// Where it differs from gpulet's (elastic.cc): the order; p_req is that of the model's whole rate
// and not of what is left of it (line 10); the first allocated gpulet that can share is taken, at
// the size that it has; and there is one attempt only.
//
// Choices where the paper leaves one:
//  - p_eff is "the knee, where the curvature has the local maximum" of the profiled rate over the
//    size. With a handful of sizes a curvature is mostly noise: the knee is the size farthest above
//    the line from nothing to the best rate, the same as elastic's.
//  - A split is only made after merging has failed. That is what reverting it comes to.
//  - The paper does not say what happens when no remaining gpulet is large enough. The rest is then
//    offered to the allocated ones as a whole; after that the largest part that one gpulet or one
//    remaining share takes is served, and what is beyond that part is unserved.
//  - Whether two can share is decided over all duty cycles (round.h).
#include "schedule/elastic_preprint.h"

#include <algorithm>
#include <optional>

#include "schedule/finish.h"
#include "schedule/spot.h"

namespace gpulet::schedule {
namespace {

class Partitioning {
 public:
  explicit Partitioning(Problem& problem)
      : problem_(problem), draft_(problem), ideal_(problem.classes().size()) {}

  Draft run() {
    for (const std::size_t model : models_by(problem_, Order::heaviest_first, rate_of)) {
      find_ideal_sizes(model);
      while (draft_.left(model) > 0 && allocate(model)) {
      }
      if (draft_.left(model) > 0) serve_part(model);
    }
    return std::move(draft_);
  }

 private:
  // Lines 9-11.
  void find_ideal_sizes(std::size_t model) {
    for (std::size_t index = 0; index < ideal_.size(); ++index) {
      ideal_[index] = knee_size(problem_, model, index);
      const auto required = required_size(problem_, model, index, problem_.models()[model]->rate);
      if (ideal_[index] && required) ideal_[index] = std::min(*ideal_[index], *required);
    }
  }

  bool allocate(std::size_t model) {
    // Lines 20-32 for what open devices have left, 23-25 for one that is still whole.
    const auto anything = [](std::size_t, std::uint32_t) { return 0.0; };
    std::optional<Spot> spot = best_remaining(draft_, model, ideal_, anything, &scratch_);
    if (!spot) spot = best_unopened(draft_, model, taken_of_whole(problem_, ideal_));
    if (merge(model, spot ? spot->rate : draft_.left(model))) return true;
    if (!spot) return false;
    occupy(draft_, model, *spot);
    return true;
  }

  // Lines 33-39.
  bool merge(std::size_t model, double rate) {
    for (std::size_t index = 0; index < draft_.gpulets().size(); ++index) {
      if (!draft_.fits(index, model, rate)) continue;
      draft_.add(index, model, rate);
      return true;
    }
    return false;
  }

  void serve_part(std::size_t model) {
    const std::optional<Draft::Room> room = draft_.most_room(model);
    const std::optional<Spot> spot = largest_share(draft_, model);
    if (spot && spot->rate > (room ? room->rate : 0)) {
      occupy(draft_, model, *spot);
    } else if (room) {
      draft_.add(room->gpulet, model, std::min(room->rate, draft_.left(model)));
    }
  }

  Problem& problem_;
  Draft draft_;
  WantedSizes ideal_;  // of the model at hand
  BestFitWalk::Scratch scratch_;
};

}  // namespace

Plan ElasticPreprint::plan(const PlanInput& input) const {
  Problem problem(input);
  Draft draft = Partitioning(problem).run();
  draft.use_spare_share();
  return finish(name(), draft);
}

}  // namespace gpulet::schedule
