// The ideal scheduler of gpulet (ATC 2022) section 5.2: "exhaustively trying all partition
// combinations" of all devices, "until all cases are searched or a case produces a viable
// scheduling result".
//
// Choices where the paper leaves one:
//  - A device is divided in one of its maximal layouts: to which no listed size can be added and in
//    which no part can be enlarged. With the paper's sizes these are its four, (2:8), (4:6), (5:5)
//    and (10:0). Devices of a type are alike, so 35 combinations of four devices stand for its 256.
//  - The paper does not say how models are placed within a combination. Here that is searched as
//    well, with backtracking (filling.h), in a bounded number of steps: no proof that a combination
//    holds nothing, but far more than one pass.
//  - elastic goes first: its plan is one of the cases, and what is there need not be searched for.
//  - The search is bounded. A cluster with more devices, layouts or combinations than the limits
//    below gets elastic's plan; so does one whose demand exceeds what any combination could serve.
//    Where the steps run out the best plan so far is returned. The plan's notes say which it was.
#include "schedule/ideal.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "schedule/elastic.h"
#include "schedule/filling.h"
#include "schedule/finish.h"
#include "schedule/layouts.h"

namespace gpulet::schedule {
namespace {

constexpr std::size_t kMostDevices = 16;
constexpr std::size_t kMostLayouts = 100;     // of one class
constexpr double kMostCombinations = 5000;    // of all devices
constexpr std::uint64_t kMostSteps = 420000;  // in all combinations together
constexpr std::uint64_t kMostStepsEach = 12000;

// Whether the work of all demands, done where it takes least of a device, is within what the
// devices have.
bool may_hold(const Problem& problem) {
  double work = 0;  // percent * ms a second
  for (std::size_t model = 0; model < problem.models().size(); ++model) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t index = 0; index < problem.classes().size(); ++index) {
      const std::vector<int>& sizes = problem.classes()[index].sizes;
      for (std::size_t size = 0; size < sizes.size(); ++size) {
        const Row& row = problem.row(model, index, size);
        if (row.largest > 0) least = std::min(least, row.least_ms * sizes[size]);
      }
    }
    work += least * problem.models()[model]->rate;
  }
  const double percent = 100.0 * static_cast<double>(problem.device_budget());
  return work <= percent * 1000 * (1 + kRoundingSlack);
}

struct Searched {
  std::optional<Draft> draft;  // better than elastic's
  std::string note;
};

std::string too_large(const std::string& what) {
  return "too large to search: " + what + "; this is elastic's plan";
}

std::optional<std::string> gather_layouts(const Problem& problem,
                                          std::vector<std::vector<Layout>>* layouts) {
  if (problem.device_budget() > kMostDevices) {
    return too_large(std::to_string(problem.device_budget()) + " devices, more than " +
                     std::to_string(kMostDevices));
  }
  for (const DeviceClass& device_class : problem.classes()) {
    auto found = maximal_layouts(device_class, kMostLayouts);
    if (!found) {
      return too_large("a device of type " + device_class.example->type +
                       " can be divided in more than " + std::to_string(kMostLayouts) + " ways");
    }
    layouts->push_back(*std::move(found));
  }
  if (count_combinations(problem, *layouts) > kMostCombinations) {
    return too_large("more than " + std::to_string(static_cast<int>(kMostCombinations)) +
                     " combinations of partitionings");
  }
  return std::nullopt;
}

Searched search(Problem& problem, double to_beat) {
  std::vector<std::vector<Layout>> layouts;
  if (const auto reason = gather_layouts(problem, &layouts)) return {std::nullopt, *reason};
  Searched searched;
  std::uint64_t steps = 0;
  bool complete = true;
  any_combination(problem, layouts, [&](const Combination& combination) {
    Filling filling = fill(problem, combination,
                           std::min(kMostStepsEach, kMostSteps - std::min(steps, kMostSteps)));
    steps += filling.steps;
    complete = complete && filling.complete;
    const double left = filling.draft.left_of_all();
    if (left < to_beat) {
      to_beat = left;
      searched.draft = std::move(filling.draft);
    }
    return to_beat == 0 || steps >= kMostSteps;
  });
  if (to_beat > 0 && !complete) {
    searched.note =
        "the search ended after " + std::to_string(steps) + " steps, before everything was tried";
  }
  return searched;
}

}  // namespace

bool ideal_searches(const Problem& problem) {
  std::vector<std::vector<Layout>> layouts;
  return !gather_layouts(problem, &layouts);
}

Plan Ideal::plan(const PlanInput& input) const {
  Problem problem(input);
  Draft best = elastic_partitioning(problem);
  std::string note;
  if (best.left_of_all() > 0 && may_hold(problem)) {
    Searched searched = search(problem, best.left_of_all());
    if (searched.draft) best = *std::move(searched.draft);
    note = std::move(searched.note);
  }
  best.use_spare_share();
  Plan plan = finish(name(), best);
  if (!note.empty()) plan.notes.push_back(std::move(note));
  return plan;
}

}  // namespace gpulet::schedule
