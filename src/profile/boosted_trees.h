// Gradient-boosted regression trees; the prediction is the sum of their outputs (fitting:
// profile/fitting.h).
//
// All nodes of one level of a tree ask the same question ("is feature f above t?"), so a tree of
// depth d is d questions and 2^d leaves in one flat array. A prediction is some comparisons and one
// look-up per tree without branches, and any table of the right sizes is a valid tree. Values;
// immutable once built; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpulet/base/status.h"

namespace gpulet::profile {

class BoostedTrees {
 public:
  static constexpr std::size_t kMostDepth = 8;
  static constexpr std::size_t kMostTrees = 4096;

  struct Question {
    std::uint32_t feature = 0;
    float threshold = 0;  // yes: the feature is above it

    friend bool operator==(const Question&, const Question&) = default;
  };

  // `questions` has `depth` entries per tree, `leaves` has 2^depth; the answer to a tree's first
  // question is the highest bit of the leaf's index. Fails with invalid where the sizes are
  // inconsistent or exceed the bounds above, a feature does not exist, or a number is not finite.
  [[nodiscard]] static Result<BoostedTrees> create(std::size_t features, std::size_t depth,
                                                   double base, std::vector<Question> questions,
                                                   std::vector<float> leaves);

  // The sum of the base and one leaf of each tree. Finite for features that are numbers.
  // REQUIRES: row.size() == features().
  [[nodiscard]] double predict(std::span<const float> row) const;

  // The same in two steps, for rows that join parts of which each occurs often. answer(): by tree,
  // the bits of the leaf's index that the questions about features from `first` on decide, as far
  // as `part` has them; the others are 0. predict_joined(): the sum for the leaves that two parts
  // with all features lead to. REQUIRES: an entry of `answers` for each tree.
  void answer(std::span<const float> part, std::size_t first,
              std::span<std::uint8_t> answers) const;
  [[nodiscard]] double predict_joined(std::span<const std::uint8_t> one,
                                      std::span<const std::uint8_t> other) const;

  [[nodiscard]] std::size_t features() const { return features_; }
  [[nodiscard]] std::size_t depth() const { return depth_; }
  [[nodiscard]] std::size_t trees() const { return leaves_.size() >> depth_; }
  [[nodiscard]] double base() const { return base_; }
  [[nodiscard]] const std::vector<Question>& questions() const { return questions_; }
  [[nodiscard]] const std::vector<float>& leaves() const { return leaves_; }

  friend bool operator==(const BoostedTrees&, const BoostedTrees&) = default;

 private:
  BoostedTrees() = default;
  template <std::size_t kDepth>
  [[nodiscard]] double add_leaves(std::span<const float> row) const;
  template <typename LeafOf>
  [[nodiscard]] double add_leaves_of(const LeafOf& leaf_of) const;

  std::size_t features_ = 0;
  std::size_t depth_ = 1;
  double base_ = 0;
  std::vector<Question> questions_;
  std::vector<float> leaves_;
};

}  // namespace gpulet::profile
