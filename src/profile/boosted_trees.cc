#include "gpulet/profile/boosted_trees.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace gpulet::profile {
namespace {

Status invalid_trees(const std::string& what) {
  return {StatusCode::invalid, "boosted trees: " + what + "; fit the model again"};
}

Status validate(std::size_t features, std::size_t depth, std::size_t questions,
                std::size_t leaves) {
  if (depth < 1 || depth > BoostedTrees::kMostDepth) {
    return invalid_trees("a depth of " + std::to_string(depth) + " is not 1 to " +
                         std::to_string(BoostedTrees::kMostDepth));
  }
  if (features == 0) return invalid_trees("there is no feature to ask for");
  const std::size_t trees = questions / depth;
  if (trees > BoostedTrees::kMostTrees) {
    return invalid_trees(std::to_string(trees) + " trees are more than " +
                         std::to_string(BoostedTrees::kMostTrees));
  }
  if (trees * depth != questions || trees << depth != leaves) {
    return invalid_trees(std::to_string(questions) + " questions and " + std::to_string(leaves) +
                         " leaves do not make trees of depth " + std::to_string(depth));
  }
  return {};
}

}  // namespace

// kDepth: known to the compiler, or 0 where only the member tells. Two sums, so that one tree's
// addition does not wait for the tree before.
template <std::size_t kDepth>
double BoostedTrees::add_leaves(std::span<const float> row) const {
  const std::size_t depth = kDepth == 0 ? depth_ : kDepth;
  const Question* question = questions_.data();
  const float* leaves = leaves_.data();
  const auto next_leaf = [&] {
    std::size_t leaf = 0;
    for (std::size_t level = 0; level < depth; ++level, ++question) {
      leaf = 2 * leaf + static_cast<std::size_t>(row[question->feature] > question->threshold);
    }
    const float value = leaves[leaf];
    leaves += std::size_t{1} << depth;
    return static_cast<double>(value);
  };
  const std::size_t count = trees();
  double even = base_;
  double odd = 0;
  for (std::size_t tree = 0; tree + 1 < count; tree += 2) {
    even += next_leaf();
    odd += next_leaf();
  }
  if (count % 2 == 1) even += next_leaf();
  return even + odd;
}

Result<BoostedTrees> BoostedTrees::create(std::size_t features, std::size_t depth, double base,
                                          std::vector<Question> questions,
                                          std::vector<float> leaves) {
  if (Status status = validate(features, depth, questions.size(), leaves.size()); !status.ok()) {
    return status;
  }
  for (const Question& question : questions) {
    if (question.feature >= features) {
      return invalid_trees("question about feature " + std::to_string(question.feature) + " of " +
                           std::to_string(features));
    }
    if (!std::isfinite(question.threshold)) return invalid_trees("a threshold is not finite");
  }
  const bool finite_leaves =
      std::all_of(leaves.begin(), leaves.end(), [](float leaf) { return std::isfinite(leaf); });
  if (!finite_leaves || !std::isfinite(base)) return invalid_trees("a leaf or base is not finite");
  BoostedTrees trees;
  trees.features_ = features;
  trees.depth_ = depth;
  trees.base_ = base;
  trees.questions_ = std::move(questions);
  trees.leaves_ = std::move(leaves);
  return trees;
}

double BoostedTrees::predict(std::span<const float> row) const {
  constexpr std::size_t kUsual = 4;
  return depth_ == kUsual ? add_leaves<kUsual>(row) : add_leaves<0>(row);
}

}  // namespace gpulet::profile
