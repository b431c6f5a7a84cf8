// Fitting: gradient boosting, least squares, and the choice of pairs. Deterministic for the inputs;
// pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/profile/profile.h"
#include "profile/boosted_trees.h"

namespace gpulet::profile {
// Gradient boosting (Friedman 2001): each tree is fitted to the residuals of the trees before it.
struct BoostingOptions {
  std::size_t trees = 100;
  std::size_t depth = 4;          // at most BoostedTrees::kMostDepth
  double learning_rate = 0.25;    // the fraction of the residual that a tree corrects
  double leaf_weight = 4;         // regularisation: as many more rows with residual 0 per leaf
  double row_fraction = 1;        // drawn for each tree
  double feature_fraction = 0.7;  // drawn for each question
  double strongest_pull = 0.1;    // Huber loss: larger residuals count as this much
  std::size_t thresholds = 48;    // candidates per feature, at most
  std::uint64_t seed = 1;
};

// `rows` contains `features` numbers for each target. Fails with invalid without rows, on
// inconsistent sizes, on options out of bounds, and on a number that is not finite.
[[nodiscard]] Result<BoostedTrees> fit_boosted_trees(std::span<const float> rows,
                                                     std::size_t features,
                                                     std::span<const double> targets,
                                                     const BoostingOptions& options);

// Ordinary least squares: the weights w that minimise the sum of (row . w - target)^2 over `rows`
// of `columns` numbers each. Householder QR, because normal equations would square the condition
// number and utilisations of L2 and memory are close to proportional. Empty for too few rows and
// for dependent columns.
[[nodiscard]] std::optional<std::vector<double>> least_squares(const std::vector<double>& rows,
                                                               std::size_t columns,
                                                               const std::vector<double>& targets);

// The pair's latency over the latency of its batch alone. Empty (the pair is not usable) where the
// profile does not know both batches alone.
[[nodiscard]] std::optional<double> pair_slowdown(const Profile& profile, const PairSample& pair);

// The numbers below `count` in a random order.
[[nodiscard]] std::vector<std::size_t> drawn_order(std::size_t count, std::uint64_t seed);

// The profile's usable pairs in a random order.
[[nodiscard]] std::vector<const PairSample*> drawn_pairs(const Profile& profile,
                                                         std::uint64_t seed);

}  // namespace gpulet::profile
