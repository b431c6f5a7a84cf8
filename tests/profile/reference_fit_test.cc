// The models of interference on the reference measurements, which lie beside the project's folder.
#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

#include "gpulet/profile/fit.h"
#include "gpulet/profile/inss_errors.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/store.h"

namespace gpulet::profile {
namespace {

class ReferenceFit : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path folder =
        std::filesystem::path(GPULET_SOURCE_DIR) / "../shared/data/measured-gpu-a";
    if (!std::filesystem::exists(folder / "interference.csv")) {
      GTEST_SKIP() << "the reference measurements are not at " << folder;
    }
    auto imported = import_csv("reference", {.latency = folder / "latency.csv",
                                             .utilization = folder / "utilization.csv",
                                             .interference = folder / "interference.csv"});
    ASSERT_TRUE(imported.ok()) << imported.status().to_string();
    profile_ = std::move(imported).value();
  }

  [[nodiscard]] HeldOutErrors errors(InterferenceKind kind, double fraction,
                                     std::uint64_t seed) const {
    const InterferenceFit fit =
        fit_interference(profile_, {.seed = seed, .train_fraction = fraction}).value();
    for (const HeldOutErrors& known : fit.errors) {
      if (known.kind == kind) return known;
    }
    throw std::out_of_range("no such errors");
  }

  Profile profile_;
};

TEST_F(ReferenceFit, LearnedIsWithinTenPercentForNineOfTenPairs) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    const HeldOutErrors learned = errors(InterferenceKind::learned, 0.7, seed);
    EXPECT_LE(learned.p90, 0.10) << "seed " << seed;
    EXPECT_LE(learned.p95, 0.15) << "seed " << seed;
  }
}

// How good a tenth of the pairs is depends on the draw, as does the tenth itself: the mean counts.
TEST_F(ReferenceFit, LearnedIsWithinTwelvePercentWithATenthOfThePairs) {
  double sum = 0;
  constexpr int kSeeds = 10;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    sum += errors(InterferenceKind::learned, 0.1, seed).p90;
  }
  EXPECT_LE(sum / kSeeds, 0.12);
}

TEST_F(ReferenceFit, LinearIsAsFarOffAsPublishedForTheseMeasurements) {
  const HeldOutErrors linear = errors(InterferenceKind::linear, 0.7, 1);
  EXPECT_NEAR(linear.p90, 0.32, 0.03);
  EXPECT_NEAR(linear.p95, 0.40, 0.03);
}

TEST_F(ReferenceFit, LearnedIsBetterThanLinearForModelsItNeverSaw) {
  const HeldOutErrors learned = errors(InterferenceKind::learned, 0.7, 1);
  const HeldOutErrors linear = errors(InterferenceKind::linear, 0.7, 1);
  ASSERT_EQ(learned.unseen_model_p90.size(), 5U);
  for (const auto& [model, p90] : learned.unseen_model_p90) {
    EXPECT_LT(p90, linear.unseen_model_p90.at(model)) << model;
  }
}

// Half as good as InSS's authors report of their own data (under 4 % at worst): why, is in
// docs/interference.md.
TEST_F(ReferenceFit, InssPredictsLatenciesAloneFromSixteenOfFortyTwo) {
  const InssErrors errors = held_out_errors(fit_inss(profile_, 1), profile_);
  EXPECT_EQ(errors.alone.count, 10U * (42 - 16));
  EXPECT_LE(errors.alone.p50, 0.02);
  EXPECT_LE(errors.alone.p90, 0.07);
  EXPECT_LE(errors.alone.worst, 0.15);
  EXPECT_LE(errors.shares.p90, 0.05);
}

TEST_F(ReferenceFit, InssIsBetterThanLinearWithFivePairsOfEachModel) {
  const double linear = errors(InterferenceKind::linear, 0.7, 1).p90;
  double sum = 0;
  constexpr int kSeeds = 5;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    sum += held_out_errors(fit_inss(profile_, seed), profile_).beside.p90;
  }
  EXPECT_LT(sum / kSeeds, linear - 0.05);
}

}  // namespace
}  // namespace gpulet::profile
