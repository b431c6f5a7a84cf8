#include "gpulet/profile/interference.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/profile/store.h"
#include "tests/profile/paired_profile.h"
#include "tests/support/names.h"

namespace gpulet::profile {
namespace {

// "a" takes 10 ms alone in every cell measured here.
Profile measured(std::vector<PairSample> pairs) {
  Profile profile;
  auto table = LatencyTable::create(
      {{1, Share{20}, 10}, {8, Share{20}, 10}, {1, Share{80}, 10}, {8, Share{80}, 10}});
  profile.models.emplace("a", ModelProfile{std::move(table).value(), {}, std::nullopt});
  profile.pairs = std::move(pairs);
  return profile;
}

TEST(MeasuredSlowdown, IsTheNearestPairsLatencyOverLatencyAlone) {
  const Profile profile = measured({{"a", 1, Share{20}, "b", 1, Share{80}, 11},
                                    {"a", 8, Share{20}, "b", 1, Share{80}, 12},
                                    {"a", 1, Share{20}, "b", 8, Share{80}, 13},
                                    {"a", 1, Share{80}, "b", 1, Share{20}, 14}});
  EXPECT_DOUBLE_EQ(measured_slowdown(profile, {"a", 1, Share{20}}, {"b", 1, Share{80}}), 1.1);
  EXPECT_DOUBLE_EQ(measured_slowdown(profile, {"a", 5, Share{20}}, {"b", 2, Share{80}}), 1.2);
  EXPECT_DOUBLE_EQ(measured_slowdown(profile, {"a", 2, Share{20}}, {"b", 16, Share{60}}), 1.3);
  EXPECT_DOUBLE_EQ(measured_slowdown(profile, {"a", 1, Share{60}}, {"b", 1, Share{40}}), 1.4);
}

TEST(MeasuredSlowdown, IsOneWithoutPairs) {
  const Profile profile = measured({{"a", 1, Share{20}, "b", 1, Share{80}, 15}});
  EXPECT_EQ(measured_slowdown(profile, {"a", 1, Share{20}}, {"c", 1, Share{80}}), 1);
  EXPECT_EQ(measured_slowdown(profile, {"b", 1, Share{80}}, {"a", 1, Share{20}}), 1);
  EXPECT_EQ(measured_slowdown(measured({}), {"a", 1, Share{20}}, {"b", 1, Share{80}}), 1);
}

TEST(MeasuredSlowdown, IsNeverASpeedUp) {
  const Profile profile = measured({{"a", 1, Share{20}, "b", 1, Share{80}, 9}});
  EXPECT_EQ(measured_slowdown(profile, {"a", 1, Share{20}}, {"b", 1, Share{80}}), 1);
}

TEST(MeasuredSlowdown, PairsWithoutTheLatencyAloneDoNotCount) {
  const Profile profile = measured(
      {{"a", 16, Share{20}, "b", 1, Share{80}, 90}, {"a", 1, Share{20}, "b", 1, Share{80}, 12}});
  EXPECT_DOUBLE_EQ(measured_slowdown(profile, {"a", 16, Share{20}}, {"b", 1, Share{80}}), 1.2);
}

}  // namespace

// What is fitted to measured pairs, and what the models of interference predict from it.

namespace {

using support::names;

double linear_rule(const PairedBatch& self, const PairedBatch& other) {
  return 1.2 + 0.3 * self.l2 + 0.1 * other.l2 + 0.2 * self.dram + 0.4 * other.dram;
}

// Small batches on large shares are bound by launches and suffer beside any neighbour.
double launch_rule(const PairedBatch& self, const PairedBatch& other) {
  return self.batch / self.share < 10 ? 1.5 : 1.02 + 0.1 * other.dram;
}

Profile fitted(const std::function<double(const PairedBatch&, const PairedBatch&)>& rule) {
  Profile profile = paired_profile(3, rule);
  profile.interference = fit_interference(profile, {}).value();
  return profile;
}

const HeldOutErrors& errors_of(const InterferenceFit& fit, InterferenceKind kind) {
  for (const HeldOutErrors& errors : fit.errors) {
    if (errors.kind == kind) return errors;
  }
  throw std::out_of_range("no errors of that kind");
}

TEST(InterferenceFit, LinearRecoversTheCoefficients) {
  const Profile profile = fitted(linear_rule);
  ASSERT_TRUE(profile.interference->linear.has_value());
  const LinearCoefficients& linear = *profile.interference->linear;
  EXPECT_NEAR(linear.l2_self, 0.3, 1e-9);
  EXPECT_NEAR(linear.l2_other, 0.1, 1e-9);
  EXPECT_NEAR(linear.dram_self, 0.2, 1e-9);
  EXPECT_NEAR(linear.dram_other, 0.4, 1e-9);
  EXPECT_NEAR(linear.constant, 1.2, 1e-9);
  EXPECT_LT(errors_of(*profile.interference, InterferenceKind::linear).p95, 1e-9);
  EXPECT_GT(errors_of(*profile.interference, InterferenceKind::none).p50, 0.2);
}

TEST(InterferenceFit, LearnedFitsNonLinearSlowdowns) {
  const Profile profile = fitted(launch_rule);
  const InterferenceFit& fit = *profile.interference;
  EXPECT_LT(errors_of(fit, InterferenceKind::learned).p90, 0.03);
  EXPECT_GT(errors_of(fit, InterferenceKind::linear).p90, 0.1);
  EXPECT_EQ(errors_of(fit, InterferenceKind::learned).unseen_model_p90.size(), 3U);
  EXPECT_LT(errors_of(fit, InterferenceKind::learned).unseen_model_p90.at("m1"), 0.1);
}

TEST(InterferenceFit, IsTheSameForASeed) {
  const Profile profile = paired_profile(2, launch_rule);
  const auto fit = [&profile](std::uint64_t seed) {
    return fit_interference(profile, {.seed = seed}).value();
  };
  EXPECT_EQ(fit(3), fit(3));
  EXPECT_NE(fit(3), fit(4));
}

TEST(InterferenceFit, WithoutUtilizationNotesTheMissingLinearModel) {
  Profile profile = paired_profile(2, launch_rule);
  profile.models.begin()->second.utilization.clear();
  profile.interference = fit_interference(profile, {}).value();
  EXPECT_FALSE(profile.interference->linear.has_value());
  EXPECT_TRUE(profile.interference->learned.has_value());
  EXPECT_FALSE(profile.interference->learned_uses_utilization);
  const Status status = InterferenceModel::create(profile, InterferenceKind::linear).status();
  EXPECT_EQ(status.code(), StatusCode::not_found);
  EXPECT_TRUE(names(status, "paired", "linear"));
}

TEST(InterferenceFit, NotesTooFewPairs) {
  Profile profile = paired_profile(2, launch_rule);
  profile.pairs.resize(kLeastPairs - 1);
  const auto fit = fit_interference(profile, {});
  ASSERT_TRUE(fit.ok());
  EXPECT_FALSE(fit.value().learned.has_value());
  EXPECT_TRUE(fit.value().errors.empty());
  EXPECT_TRUE(names(fit.value().note, std::to_string(kLeastPairs - 1)));
  profile.pairs.clear();
  EXPECT_TRUE(fit_interference(profile, {}).ok());
}

TEST(InterferenceFit, RefusesAFractionOutOfBounds) {
  const Profile profile = paired_profile(2, launch_rule);
  for (const double fraction : {0.0, 1.0, -1.0, std::nan("")}) {
    EXPECT_EQ(fit_interference(profile, {.train_fraction = fraction}).status().code(),
              StatusCode::invalid)
        << fraction;
  }
  for (const double fraction : {1e-9, 1 - 1e-9}) {
    EXPECT_TRUE(fit_interference(profile, {.train_fraction = fraction}).ok());
  }
}

TEST(InterferenceModel, NeedsAFitOrPairs) {
  Profile profile = paired_profile(2, launch_rule);
  for (const InterferenceKind kind : {InterferenceKind::linear, InterferenceKind::learned}) {
    EXPECT_TRUE(
        names(InterferenceModel::create(profile, kind).status(), "paired", to_string(kind)));
  }
  profile.pairs.clear();
  EXPECT_EQ(InterferenceModel::create(profile, InterferenceKind::measured).status().code(),
            StatusCode::not_found);
  EXPECT_TRUE(InterferenceModel::create(profile, InterferenceKind::none).ok());
}

TEST(InterferenceModel, ASetNeedsAFitOfEveryProfile) {
  ProfileSet profiles;
  profiles.emplace("paired", fitted(launch_rule));
  EXPECT_EQ(interference_of(profiles, InterferenceKind::learned).value().size(), 1U);
  EXPECT_TRUE(interference_of(profiles, InterferenceKind::none).value().empty());
  profiles["other"] = paired_profile(1, launch_rule);
  EXPECT_FALSE(interference_of(profiles, InterferenceKind::learned).ok());
}

TEST(InterferenceKind, ReadsItsOwnNames) {
  for (const InterferenceKind kind :
       {InterferenceKind::none, InterferenceKind::linear, InterferenceKind::learned,
        InterferenceKind::measured, InterferenceKind::inss, InterferenceKind::combined}) {
    EXPECT_EQ(parse_interference_kind(to_string(kind)).value(), kind);
  }
  EXPECT_TRUE(names(parse_interference_kind("Linear").status(), "\"Linear\""));
}

TEST(InterferenceModel, AnUnknownModelHasNoInterference) {
  const Profile profile = fitted(launch_rule);
  const auto model = InterferenceModel::create(profile, InterferenceKind::learned).value();
  const BatchTraits known = model.traits("m0", 1, Share{50});
  EXPECT_GT(model.slowdown(known, known), 1);
  for (const BatchTraits& unknown :
       {model.traits("m9", 1, Share{50}), model.traits("m0", 17, Share{50}),
        model.traits("m0", 1, Share{90}), BatchTraits{}}) {
    EXPECT_EQ(model.slowdown(known, unknown), 1);
    EXPECT_EQ(model.slowdown(unknown, known), 1);
  }
}

TEST(InterferenceModel, CombinedIsMeasuredWhereItCanBeAndLearnedElsewhere) {
  Profile profile = fitted(launch_rule);
  // Half of the pairs, one of them far from what any fit predicts.
  for (std::size_t i = 1; i < profile.pairs.size(); ++i)
    profile.pairs.erase(profile.pairs.begin() + static_cast<std::ptrdiff_t>(i));
  profile.pairs.front().latency_ms *= 5;
  const Profile all = fitted(launch_rule);
  const auto combined = InterferenceModel::create(profile, InterferenceKind::combined).value();
  const auto learned = InterferenceModel::create(profile, InterferenceKind::learned).value();
  std::size_t measured_pairs = 0;
  for (const PairSample& pair : all.pairs) {
    const CoRunner self{pair.model, pair.batch, pair.share};
    const CoRunner other{pair.other_model, pair.other_batch, pair.other_share};
    const auto ask = [&](const InterferenceModel& model) {
      return model.slowdown(model.traits(self.model, self.batch, self.share),
                            model.traits(other.model, other.batch, other.share));
    };
    const bool measured =
        std::any_of(profile.pairs.begin(), profile.pairs.end(), [&](const PairSample& known) {
          return known.model == pair.model && known.batch == pair.batch &&
                 known.share == pair.share && known.other_model == pair.other_model &&
                 known.other_batch == pair.other_batch && known.other_share == pair.other_share;
        });
    measured_pairs += measured ? 1 : 0;
    EXPECT_DOUBLE_EQ(ask(combined),
                     measured ? measured_slowdown(profile, self, other) : ask(learned));
  }
  EXPECT_EQ(measured_pairs, profile.pairs.size());
}

TEST(InterferenceModel, CombinedNeedsAFitOrPairs) {
  Profile profile = paired_profile(2, launch_rule);
  profile.pairs.resize(1);
  const PairSample pair = profile.pairs.front();
  const auto model = InterferenceModel::create(profile, InterferenceKind::combined).value();
  EXPECT_DOUBLE_EQ(
      model.slowdown(model.traits(pair.model, pair.batch, pair.share),
                     model.traits(pair.other_model, pair.other_batch, pair.other_share)),
      measured_slowdown(profile, {pair.model, pair.batch, pair.share},
                        {pair.other_model, pair.other_batch, pair.other_share}));
  profile.pairs.clear();
  EXPECT_EQ(InterferenceModel::create(profile, InterferenceKind::combined).status().code(),
            StatusCode::not_found);
}

class EveryKind : public testing::TestWithParam<InterferenceKind> {};

TEST_P(EveryKind, IsLinearBetweenMeasuredBatchesOfEither) {
  const Profile profile = fitted(launch_rule);
  const auto model = InterferenceModel::create(profile, GetParam()).value();
  for (const int size : {20, 35, 50}) {
    const auto slowdown = [&](std::uint32_t batch, std::uint32_t other) {
      return model.slowdown(model.traits("m0", batch, Share{size}),
                            model.traits("m1", other, Share{100 - size}));
    };
    for (std::uint32_t batch = 4; batch <= 16; ++batch) {
      const double part = (batch - 4) / 12.0;
      EXPECT_NEAR(slowdown(batch, 1), std::lerp(slowdown(4, 1), slowdown(16, 1), part), 1e-12);
      EXPECT_NEAR(slowdown(16, batch), std::lerp(slowdown(16, 4), slowdown(16, 16), part), 1e-12);
      EXPECT_NEAR(slowdown(batch, batch),
                  std::lerp(std::lerp(slowdown(4, 4), slowdown(4, 16), part),
                            std::lerp(slowdown(16, 4), slowdown(16, 16), part), part),
                  1e-12);
    }
  }
}

TEST_P(EveryKind, SaysTheSameWhenAskedAgain) {
  const Profile profile = fitted(launch_rule);
  const auto model = InterferenceModel::create(profile, GetParam()).value();
  const auto other = InterferenceModel::create(profile, GetParam()).value();
  for (const PairSample& pair : profile.pairs) {
    const auto ask = [&pair](const InterferenceModel& asked) {
      return asked.slowdown(asked.traits(pair.model, pair.batch, pair.share),
                            asked.traits(pair.other_model, pair.other_batch, pair.other_share));
    };
    EXPECT_EQ(ask(model), ask(model));
    EXPECT_EQ(ask(model), ask(other));
  }
}

TEST_P(EveryKind, FindsTheLeastSlowdownByManyNeighbours) {
  const Profile profile = fitted(launch_rule);
  const auto model = InterferenceModel::create(profile, GetParam()).value();
  std::vector<BatchTraits> others;
  for (const auto& [name, known] : profile.models) {
    for (const LatencySample& sample : known.latency.samples())
      others.push_back(model.traits(name, sample.batch, sample.share));
  }
  EXPECT_EQ(model.least_slowdown(others.front(), {}), kMostSlowdown);
  for (const std::uint32_t batch : {1U, 7U, 16U}) {
    const BatchTraits self = model.traits("m0", batch, Share{50});
    double least = kMostSlowdown;
    for (const BatchTraits& other : others) least = std::min(least, model.slowdown(self, other));
    EXPECT_LE(model.least_slowdown(self, others), least);
    EXPECT_NEAR(model.least_slowdown(self, others), least, 0.001 * least);
  }
}

INSTANTIATE_TEST_SUITE_P(InterferenceModel, EveryKind,
                         testing::Values(InterferenceKind::none, InterferenceKind::linear,
                                         InterferenceKind::learned, InterferenceKind::measured,
                                         InterferenceKind::combined),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

// Any pairs at all, most of them absurd.
Profile any_paired_profile() {
  Profile profile = paired_profile(2, [](const PairedBatch&, const PairedBatch&) {
    return std::exp(*rc::gen::inRange(-400, 400) / 10.0);
  });
  if (*rc::gen::arbitrary<bool>()) profile.models.begin()->second.utilization.clear();
  profile.interference = fit_interference(profile, {.train_fraction = 0.5}).value();
  return profile;
}

RC_GTEST_PROP(InterferenceModelProperty, PredictionsAreFiniteAndNoSpeedUps, ()) {
  const Profile profile = any_paired_profile();
  for (const InterferenceKind kind : {InterferenceKind::linear, InterferenceKind::learned,
                                      InterferenceKind::measured, InterferenceKind::combined}) {
    const auto model = InterferenceModel::create(profile, kind);
    if (!model.ok()) continue;
    for (int i = 0; i < 50; ++i) {
      const auto traits = [&] {
        return model.value().traits(*rc::gen::element<std::string>("m0", "m1"),
                                    *rc::gen::inRange<std::uint32_t>(1, 17),
                                    Share{*rc::gen::inRange(20, 81)});
      };
      const double slowdown = model.value().slowdown(traits(), traits());
      RC_ASSERT(std::isfinite(slowdown));
      RC_ASSERT(slowdown >= 1);
    }
  }
}

RC_GTEST_PROP(InterferenceModelProperty, MeasuredIsTheNearestPairAtMeasuredBatches, ()) {
  Profile profile = paired_profile(2, [](const PairedBatch&, const PairedBatch&) {
    return 1 + *rc::gen::inRange(0, 100) / 100.0;
  });
  // Holes, and an order that decides ties.
  std::vector<PairSample> kept;
  for (const PairSample& pair : profile.pairs) {
    if (*rc::gen::arbitrary<bool>())
      kept.insert(*rc::gen::arbitrary<bool>() ? kept.begin() : kept.end(), pair);
  }
  RC_PRE(!kept.empty());
  profile.pairs = kept;
  const auto model = InterferenceModel::create(profile, InterferenceKind::measured).value();
  for (int i = 0; i < 30; ++i) {
    const auto any = [] {
      return CoRunner{*rc::gen::element<std::string_view>("m0", "m1"),
                      *rc::gen::element<std::uint32_t>(1, 4, 16), Share{*rc::gen::inRange(20, 81)}};
    };
    const CoRunner self = any();
    const CoRunner other = any();
    RC_ASSERT(model.slowdown(model.traits(self.model, self.batch, self.share),
                             model.traits(other.model, other.batch, other.share)) ==
              measured_slowdown(profile, self, other));
  }
}

}  // namespace

// The models of interference on the reference measurements.

namespace {

class ReferenceFit : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path folder =
        std::filesystem::path(GPULET_SOURCE_DIR) / "profiles/reference-gpu";
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
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U, 5U}) {
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

}  // namespace

}  // namespace gpulet::profile
