#include "profile/boosted_trees.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gpulet/base/random.h"
#include "profile/fitting.h"
#include "tests/support/names.h"

namespace gpulet::profile {
namespace {

using support::names;
using Row = std::vector<float>;

TEST(BoostedTrees, AddOneLeafOfEachTree) {
  // Depth 2, the first question is the higher bit.
  const auto trees = BoostedTrees::create(2, 2, 0.5, {{0, 1}, {1, 10}, {1, 20}, {0, 2}},
                                          {1, 2, 3, 4, 10, 20, 30, 40});
  ASSERT_TRUE(trees.ok());
  EXPECT_EQ(trees.value().trees(), 2U);
  EXPECT_DOUBLE_EQ(trees.value().predict(Row{0, 0}), 0.5 + 1 + 10);
  EXPECT_DOUBLE_EQ(trees.value().predict(Row{1, 15}), 0.5 + 2 + 10)
      << "a threshold is not above itself";
  EXPECT_DOUBLE_EQ(trees.value().predict(Row{1.5, 0}), 0.5 + 3 + 10);
  EXPECT_DOUBLE_EQ(trees.value().predict(Row{3, 30}), 0.5 + 4 + 40);
}

TEST(BoostedTrees, PredictTheSameFromPartsOfARow) {
  const auto trees = BoostedTrees::create(2, 2, 0.5, {{0, 1}, {1, 10}, {1, 20}, {0, 2}},
                                          {1, 2, 3, 4, 10, 20, 30, 40});
  ASSERT_TRUE(trees.ok());
  for (const Row& row : {Row{0, 0}, Row{1, 15}, Row{1.5, 0}, Row{3, 30}}) {
    std::vector<std::uint8_t> first(trees.value().trees());
    std::vector<std::uint8_t> second(trees.value().trees());
    trees.value().answer(std::span(row).first(1), 0, first);
    trees.value().answer(std::span(row).last(1), 1, second);
    EXPECT_EQ(trees.value().predict_joined(first, second), trees.value().predict(row));
  }
}

TEST(BoostedTrees, WithoutTreesPredictTheBase) {
  const auto trees = BoostedTrees::create(1, 3, 0.25, {}, {});
  ASSERT_TRUE(trees.ok());
  EXPECT_DOUBLE_EQ(trees.value().predict(Row{7}), 0.25);
}

TEST(BoostedTrees, RefuseInconsistentTables) {
  const auto refusal = [](std::size_t features, std::size_t depth, double base,
                          std::vector<BoostedTrees::Question> questions,
                          std::vector<float> leaves) {
    return BoostedTrees::create(features, depth, base, std::move(questions), std::move(leaves))
        .status();
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(refusal(1, 1, 0, {{0, 0}}, {0, 0}), Status());
  EXPECT_TRUE(names(refusal(1, 0, 0, {}, {}), "0", "8"));
  EXPECT_TRUE(names(refusal(1, 9, 0, {}, {}), "9"));
  EXPECT_EQ(refusal(0, 1, 0, {}, {}).code(), StatusCode::invalid);
  EXPECT_TRUE(names(refusal(1, 1, 0, {{0, 0}}, {0}), "1 questions", "1 leaves"));
  EXPECT_TRUE(
      names(refusal(1, 2, 0, {{0, 0}}, {0, 0, 0, 0}), "1 questions", "4 leaves", "depth 2"));
  EXPECT_TRUE(names(refusal(1, 1, 0, {{1, 0}}, {0, 0}), "feature 1"));
  EXPECT_EQ(refusal(1, 1, 0, {{0, kNan}}, {0, 0}).code(), StatusCode::invalid);
  EXPECT_EQ(refusal(1, 1, 0, {{0, 0}}, {0, kNan}).code(), StatusCode::invalid);
  EXPECT_EQ(refusal(1, 1, std::nan(""), {}, {}).code(), StatusCode::invalid);
  EXPECT_TRUE(
      names(refusal(1, 1, 0, std::vector<BoostedTrees::Question>(5000), {}), "5000", "4096"));
}

struct Samples {
  Row rows;
  std::vector<double> targets;
};

// A step, an interaction, and a feature that says nothing.
Samples samples(std::uint64_t seed, std::size_t count) {
  Random random(seed);
  Samples made;
  for (std::size_t i = 0; i < count; ++i) {
    const double a = random.uniform();
    const double b = random.uniform();
    made.rows.insert(made.rows.end(), {static_cast<float>(a), static_cast<float>(b),
                                       static_cast<float>(random.uniform())});
    made.targets.push_back((a > 0.3 ? 0.4 : 0) + (a > 0.6 && b > 0.5 ? 0.3 : 0));
  }
  return made;
}

TEST(Boosting, LearnsStepsAndInteractions) {
  const Samples fitted = samples(1, 1000);
  const auto trees = fit_boosted_trees(fitted.rows, 3, fitted.targets, {});
  ASSERT_TRUE(trees.ok()) << trees.status().to_string();
  const Samples unseen = samples(2, 500);
  std::vector<double> errors;
  for (std::size_t i = 0; i < unseen.targets.size(); ++i) {
    const double predicted = trees.value().predict(std::span(unseen.rows).subspan(3 * i, 3));
    errors.push_back(std::abs(predicted - unseen.targets[i]));
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_LT(errors[errors.size() * 9 / 10], 0.03);
}

TEST(Boosting, IsTheSameForASeed) {
  const Samples fitted = samples(1, 200);
  const auto fit = [&](std::uint64_t seed) {
    return fit_boosted_trees(fitted.rows, 3, fitted.targets, {.seed = seed}).value();
  };
  EXPECT_EQ(fit(5), fit(5));
  EXPECT_NE(fit(5), fit(6));
}

TEST(Boosting, IsRobustAgainstOutliers) {
  std::vector<double> targets(50, 1.0);
  targets[7] = 100;
  const auto trees = fit_boosted_trees(Row(50, 3.0F), 1, targets, {});
  ASSERT_TRUE(trees.ok());
  EXPECT_NEAR(trees.value().predict(Row{3}), 1.0, 0.01);
}

TEST(Boosting, PredictsAsItFittedWithoutAUsefulQuestion) {
  const auto trees = fit_boosted_trees(Row(3, 5.0F), 1, std::vector<double>{0, 0, 0.09}, {});
  ASSERT_TRUE(trees.ok());
  EXPECT_NEAR(trees.value().predict(Row{5}), 0.03, 0.001) << "the mean, not the median";
}

TEST(Boosting, RefusesInvalidInput) {
  const std::vector<double> one{1};
  const auto refusal = [](const Row& rows, std::size_t features, const std::vector<double>& targets,
                          const BoostingOptions& options) {
    return fit_boosted_trees(rows, features, targets, options).status();
  };
  EXPECT_EQ(refusal({1, 1}, 2, one, {}), Status());
  EXPECT_EQ(refusal({}, 2, {}, {}).code(), StatusCode::invalid);
  EXPECT_TRUE(names(refusal({1}, 2, one, {}), "1 numbers", "1 rows of 2"));
  EXPECT_EQ(refusal({1, std::nanf("")}, 2, one, {}).code(), StatusCode::invalid);
  EXPECT_EQ(refusal({1, 1}, 2, {std::nan("")}, {}).code(), StatusCode::invalid);
  EXPECT_TRUE(names(refusal({1, 1}, 2, one, {.depth = 9}), "9"));
}

RC_GTEST_PROP(BoostingProperty, PredictionsOfAnyFitAreFinite, ()) {
  const auto rows = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::arbitrary<std::pair<int, int>>()));
  Row numbers;
  std::vector<double> targets;
  for (const auto& [a, b] : rows) {
    numbers.insert(numbers.end(), {static_cast<float>(a), static_cast<float>(b % 3)});
    targets.push_back(b / 1e3);
  }
  const auto trees = fit_boosted_trees(numbers, 2, targets, {.trees = 10});
  RC_ASSERT(trees.ok());
  const Row asked{static_cast<float>(*rc::gen::arbitrary<int>()),
                  *rc::gen::element(0.0F, 1e30F, -1e30F)};
  RC_ASSERT(std::isfinite(trees.value().predict(asked)));
}

TEST(LeastSquares, FindsTheWeightsThatFitBest) {
  // y = 2 x - 1 with one point off by e: the residuals of least squares are orthogonal to the rows.
  const std::vector<double> rows{0, 1, 1, 1, 2, 1, 3, 1};
  const std::vector<double> targets{-1, 1, 3.5, 5};
  const auto weights = least_squares(rows, 2, targets);
  ASSERT_TRUE(weights.has_value());
  double with_x = 0;
  double with_one = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const double residual = targets[i] - rows[2 * i] * (*weights)[0] - (*weights)[1];
    with_x += residual * rows[2 * i];
    with_one += residual;
  }
  EXPECT_NEAR(with_x, 0, 1e-12);
  EXPECT_NEAR(with_one, 0, 1e-12);
}

TEST(LeastSquares, HasNoAnswerForDependentOrTooFewRows) {
  EXPECT_EQ(least_squares({1, 2, 2, 4, 3, 6}, 2, {1, 2, 3}), std::nullopt);
  EXPECT_EQ(least_squares({0, 1, 0, 1}, 2, {1, 2}), std::nullopt);
  EXPECT_EQ(least_squares({1, 2}, 2, {1}), std::nullopt);
}

}  // namespace
}  // namespace gpulet::profile
