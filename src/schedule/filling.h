// Fills the gpulets of one combination (layouts.h) with the demands: a search with backtracking
// over who goes where. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "schedule/draft.h"
#include "schedule/layouts.h"

namespace gpulet::schedule {

struct Filling {
  Draft draft;              // serves everything, or the most that was seen
  std::uint64_t steps = 0;  // gpulets asked for room, and rows looked at to answer
  bool complete = false;    // nothing that the search knows was left untried for lack of steps
};

// Each model in turn is placed in every gpulet where it fits whole, or fills a gpulet and goes on
// with the rest: all of these choices, in every of a few orders of the models, until one serves
// everything or `most_steps` are spent. Two gpulets that are alike are tried once. Combinations
// whose gpulets are too small for the work are seen through at once.
[[nodiscard]] Filling fill(Problem& problem, const Combination& combination,
                           std::uint64_t most_steps);

}  // namespace gpulet::schedule
