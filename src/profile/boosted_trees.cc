#include "profile/boosted_trees.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "gpulet/base/random.h"
#include "profile/fitting.h"

namespace gpulet::profile {
namespace {

template <typename... Values>
Status invalid_trees(fmt::format_string<const Values&...> format, const Values&... values) {
  return {StatusCode::invalid,
          fmt::format("boosted trees: {}; fit the model again", fmt::format(format, values...))};
}

Status validate(std::size_t features, std::size_t depth, std::size_t questions,
                std::size_t leaves) {
  if (depth < 1 || depth > BoostedTrees::kMostDepth) {
    return invalid_trees("a depth of {} is not 1 to {}", depth, BoostedTrees::kMostDepth);
  }
  if (features == 0) return invalid_trees("there are no features");
  const std::size_t trees = questions / depth;
  if (trees > BoostedTrees::kMostTrees)
    return invalid_trees("{} trees are more than {}", trees, BoostedTrees::kMostTrees);
  if (trees * depth != questions || trees << depth != leaves) {
    return invalid_trees("{} questions and {} leaves do not make trees of depth {}", questions,
                         leaves, depth);
  }
  return {};
}

}  // namespace

// Calls leaf_of(tree) for each tree in turn. Two sums, so that one tree's addition does not wait
// for the previous one.
template <typename LeafOf>
double BoostedTrees::add_leaves_of(const LeafOf& leaf_of) const {
  const float* const leaves = leaves_.data();
  const auto value = [&](std::size_t tree) {
    return static_cast<double>(leaves[(tree << depth_) + leaf_of(tree)]);
  };
  const std::size_t count = trees();
  double even = base_;
  double odd = 0;
  for (std::size_t tree = 0; tree + 1 < count; tree += 2) {
    even += value(tree);
    odd += value(tree + 1);
  }
  if (count % 2 == 1) even += value(count - 1);
  return even + odd;
}

// kDepth: the depth as a constant, or 0 to use the member.
template <std::size_t kDepth>
double BoostedTrees::add_leaves(std::span<const float> row) const {
  const std::size_t depth = kDepth == 0 ? depth_ : kDepth;
  const Question* question = questions_.data();
  return add_leaves_of([&](std::size_t) {
    std::size_t leaf = 0;
    for (std::size_t level = 0; level < depth; ++level, ++question) {
      leaf = 2 * leaf + static_cast<std::size_t>(row[question->feature] > question->threshold);
    }
    return leaf;
  });
}

FittedTrees::FittedTrees(BoostedTrees trees)
    : trees_(std::make_shared<const BoostedTrees>(std::move(trees))) {}

bool operator==(const FittedTrees& one, const FittedTrees& other) {
  if (!one.has_value() || !other.has_value()) return one.has_value() == other.has_value();
  return *one == *other;
}

Result<BoostedTrees> BoostedTrees::create(std::size_t features, std::size_t depth, double base,
                                          std::vector<Question> questions,
                                          std::vector<float> leaves) {
  if (Status status = validate(features, depth, questions.size(), leaves.size()); !status.ok()) {
    return status;
  }
  for (const Question& question : questions) {
    if (question.feature >= features)
      return invalid_trees("question about feature {} of {}", question.feature, features);
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

void BoostedTrees::answer(std::span<const float> part, std::size_t first,
                          std::span<std::uint8_t> answers) const {
  const Question* question = questions_.data();
  for (std::size_t tree = 0; tree < trees(); ++tree) {
    unsigned leaf = 0;
    for (std::size_t level = 0; level < depth_; ++level, ++question) {
      const std::size_t at = question->feature - first;  // wraps around for a feature before first
      leaf = 2 * leaf + static_cast<unsigned>(at < part.size() && part[at] > question->threshold);
    }
    answers[tree] = static_cast<std::uint8_t>(leaf);
  }
}

double BoostedTrees::predict_joined(std::span<const std::uint8_t> one,
                                    std::span<const std::uint8_t> other) const {
  const std::uint8_t* const first = one.data();
  const std::uint8_t* const second = other.data();
  return add_leaves_of(
      [=](std::size_t tree) { return static_cast<std::size_t>(first[tree] | second[tree]); });
}

namespace {

// The rows with each number replaced by its bin between the candidate thresholds. A search for the
// best question then reads each row once, whatever the number of candidates.
class BinnedRows {
 public:
  BinnedRows(std::span<const float> rows, std::size_t features, std::size_t most_thresholds) {
    const std::size_t count = rows.size() / features;
    std::vector<float> values(count);
    for (std::size_t feature = 0; feature < features; ++feature) {
      for (std::size_t row = 0; row < count; ++row) values[row] = rows[row * features + feature];
      greatest_.push_back(*std::max_element(values.begin(), values.end()));
      const std::vector<float>& cuts =
          thresholds_.emplace_back(candidates(values, most_thresholds));
      std::vector<std::uint32_t>& bins = bins_.emplace_back(count);
      for (std::size_t row = 0; row < count; ++row) {
        const auto cut = std::lower_bound(cuts.begin(), cuts.end(), values[row]);
        bins[row] = static_cast<std::uint32_t>(cut - cuts.begin());
      }
    }
  }

  [[nodiscard]] std::size_t features() const { return thresholds_.size(); }
  [[nodiscard]] const std::vector<float>& thresholds(std::size_t feature) const {
    return thresholds_[feature];
  }
  // No row is above it.
  [[nodiscard]] float greatest(std::size_t feature) const { return greatest_[feature]; }
  // By row. A row is above threshold `cut` where its bin is greater than `cut`.
  [[nodiscard]] const std::vector<std::uint32_t>& bins(std::size_t feature) const {
    return bins_[feature];
  }

 private:
  // Midpoints of adjacent values, at most `most` of them, spread evenly over the values.
  static std::vector<float> candidates(std::vector<float> values, std::size_t most) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    std::vector<float> cuts;
    const std::size_t gaps = values.size() - 1;
    const std::size_t count = std::min(gaps, most);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t gap = count == gaps ? i : (2 * i + 1) * gaps / (2 * count);
      cuts.push_back(std::midpoint(values[gap], values[gap + 1]));
    }
    return cuts;
  }

  std::vector<std::vector<float>> thresholds_;    // by feature
  std::vector<float> greatest_;                   // by feature
  std::vector<std::vector<std::uint32_t>> bins_;  // by feature, then row
};

double median(std::span<const double> numbers) {
  std::vector<double> ordered(numbers.begin(), numbers.end());
  const auto middle = ordered.begin() + static_cast<std::ptrdiff_t>(ordered.size() / 2);
  std::nth_element(ordered.begin(), middle, ordered.end());
  return *middle;
}

// A sum over rows.
struct Sum {
  double pull = 0;  // the clipped residuals
  double rows = 0;  // their number

  void add(const Sum& other) {
    pull += other.pull;
    rows += other.rows;
  }
  // The reduction of the squared error when these rows get their regularised mean.
  [[nodiscard]] double gain(double leaf_weight) const {
    return rows == 0 ? 0 : pull * pull / (rows + leaf_weight);
  }
};

class Boosting {
 public:
  Boosting(std::span<const float> rows, std::size_t features, std::span<const double> targets,
           const BoostingOptions& options)
      : rows_(rows, features, options.thresholds),
        options_(options),
        random_(options.seed),
        base_(median(targets)),
        residual_(targets.begin(), targets.end()),
        clipped_(targets.size()),
        leaf_of_(targets.size()) {
    for (double& missing : residual_) missing -= base_;
  }

  Result<BoostedTrees> run() {
    for (std::size_t tree = 0; tree < options_.trees; ++tree) {
      draw_rows();
      ask_questions();
      add_leaves();
    }
    return BoostedTrees::create(rows_.features(), options_.depth, base_, std::move(questions_),
                                std::move(leaves_));
  }

 private:
  struct Choice {
    std::size_t feature = 0;
    std::size_t cut = 0;
    double gain = -1;
  };

  void draw_rows() {
    const double limit = options_.strongest_pull;
    drawn_.clear();
    for (std::uint32_t row = 0; row < residual_.size(); ++row) {
      clipped_[row] = std::clamp(residual_[row], -limit, limit);
      if (random_.uniform() < options_.row_fraction) drawn_.push_back(row);
    }
  }

  void ask_questions() {
    std::fill(leaf_of_.begin(), leaf_of_.end(), 0);
    for (std::size_t level = 0; level < options_.depth; ++level) {
      const Choice choice = best_question(std::size_t{1} << level);
      const std::vector<float>& cuts = rows_.thresholds(choice.feature);
      // Without a useful question all rows go to one side, here and in predictions.
      const bool none = choice.cut >= cuts.size();
      questions_.push_back({.feature = static_cast<std::uint32_t>(choice.feature),
                            .threshold = none ? rows_.greatest(choice.feature) : cuts[choice.cut]});
      const std::vector<std::uint32_t>& bins = rows_.bins(choice.feature);
      for (std::size_t row = 0; row < leaf_of_.size(); ++row) {
        const bool above = !none && bins[row] > choice.cut;
        leaf_of_[row] = 2 * leaf_of_[row] + static_cast<std::uint32_t>(above);
      }
    }
  }

  // The best question about the drawn features; about the last one if no other was tried.
  Choice best_question(std::size_t leaves) {
    Choice best;
    for (std::size_t feature = 0; feature < rows_.features(); ++feature) {
      const bool drawn = random_.uniform() < options_.feature_fraction;
      const bool last = feature + 1 == rows_.features();
      if (rows_.thresholds(feature).empty() || (!drawn && !(last && best.gain < 0))) continue;
      try_feature(feature, leaves, best);
    }
    return best;
  }

  // All leaves get the same question, so its gain is the sum over the leaves.
  void try_feature(std::size_t feature, std::size_t leaves, Choice& best) {
    const std::size_t cuts = rows_.thresholds(feature).size();
    const std::vector<std::uint32_t>& bins = rows_.bins(feature);
    sums_.assign(leaves * (cuts + 1), Sum{});
    for (const std::uint32_t row : drawn_) {
      sums_[leaf_of_[row] * (cuts + 1) + bins[row]].add({clipped_[row], 1});
    }
    gains_.assign(cuts, 0);
    for (std::size_t leaf = 0; leaf < leaves; ++leaf) {
      const std::span<const Sum> by_bin(&sums_[leaf * (cuts + 1)], cuts + 1);
      Sum all;
      for (const Sum& sum : by_bin) all.add(sum);
      if (all.rows == 0) continue;
      Sum below;
      for (std::size_t cut = 0; cut < cuts; ++cut) {
        below.add(by_bin[cut]);
        const Sum above{all.pull - below.pull, all.rows - below.rows};
        gains_[cut] += below.gain(options_.leaf_weight) + above.gain(options_.leaf_weight);
      }
    }
    for (std::size_t cut = 0; cut < cuts; ++cut) {
      if (gains_[cut] > best.gain) best = {.feature = feature, .cut = cut, .gain = gains_[cut]};
    }
  }

  void add_leaves() {
    std::vector<Sum> sums(std::size_t{1} << options_.depth);
    for (const std::uint32_t row : drawn_) sums[leaf_of_[row]].add({clipped_[row], 1});
    const std::size_t first = leaves_.size();
    for (const Sum& sum : sums) {
      const double weight = std::max(sum.rows + options_.leaf_weight, 1.0);
      leaves_.push_back(static_cast<float>(options_.learning_rate * sum.pull / weight));
    }
    for (std::size_t row = 0; row < residual_.size(); ++row) {
      residual_[row] -= static_cast<double>(leaves_[first + leaf_of_[row]]);
    }
  }

  const BinnedRows rows_;
  const BoostingOptions options_;
  Random random_;
  const double base_;
  std::vector<double> residual_;        // by row: target minus prediction
  std::vector<double> clipped_;         // by row: the residual, clipped
  std::vector<std::uint32_t> drawn_;    // rows
  std::vector<std::uint32_t> leaf_of_;  // by row, in the current tree
  std::vector<BoostedTrees::Question> questions_;
  std::vector<float> leaves_;
  std::vector<Sum> sums_;
  std::vector<double> gains_;
};

Status validate(std::span<const float> rows, std::size_t features, std::span<const double> targets,
                const BoostingOptions& options) {
  const auto invalid = [](const std::string& problem) {
    return Status(StatusCode::invalid, "fit of boosted trees: " + problem);
  };
  const auto finite = [](auto number) { return std::isfinite(number); };
  if (features == 0 || targets.empty() || rows.size() != targets.size() * features) {
    return invalid(
        fmt::format("{} numbers are not {} rows of {} features; give at least one whole row",
                    rows.size(), targets.size(), features));
  }
  if (!std::all_of(rows.begin(), rows.end(), finite) ||
      !std::all_of(targets.begin(), targets.end(), finite)) {
    return invalid("a number is not finite; take its row out");
  }
  if (options.depth < 1 || options.depth > BoostedTrees::kMostDepth ||
      options.trees > BoostedTrees::kMostTrees || !(options.leaf_weight >= 0) ||
      !(options.strongest_pull > 0) || !std::isfinite(options.learning_rate)) {
    return invalid(fmt::format("options are out of bounds; depth is {}, trees are {}",
                               options.depth, options.trees));
  }
  return {};
}

}  // namespace

Result<BoostedTrees> fit_boosted_trees(std::span<const float> rows, std::size_t features,
                                       std::span<const double> targets,
                                       const BoostingOptions& options) {
  if (Status status = validate(rows, features, targets, options); !status.ok()) return status;
  return Boosting(rows, features, targets, options).run();
}

}  // namespace gpulet::profile
