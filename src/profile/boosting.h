// Fits BoostedTrees by gradient boosting (Friedman 2001): tree by tree, each to what the ones
// before it still miss. Deterministic for its inputs; pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpulet/core/status.h"
#include "gpulet/profile/boosted_trees.h"

namespace gpulet::profile {

struct BoostingOptions {
  std::size_t trees = 100;
  std::size_t depth = 4;          // at most BoostedTrees::kMostDepth
  double learning_rate = 0.25;    // how much of what is missed a tree makes up for
  double leaf_weight = 4;         // every leaf reckons with so many more rows that miss nothing
  double row_fraction = 1;        // of the rows, drawn for each tree
  double feature_fraction = 0.7;  // of the features, drawn for each question
  double strongest_pull = 0.1;    // a row that misses more pulls no harder (Huber's loss): outliers
  std::size_t thresholds = 48;    // at most so many candidates per feature
  std::uint64_t seed = 1;
};

// `rows` holds rows of `features` numbers each, one after the other, beside `targets`. Fails
// (invalid) without rows, where the sizes do not fit each other, on options out of bounds, and on a
// number that is not finite.
[[nodiscard]] Result<BoostedTrees> fit_boosted_trees(std::span<const float> rows,
                                                     std::size_t features,
                                                     std::span<const double> targets,
                                                     const BoostingOptions& options);

}  // namespace gpulet::profile
