#include <gtest/gtest.h>

#include "gpulet/profile/estimate.h"

namespace gpulet::profile::corrections_test {
namespace {

ProfileSet card() {
  Profile profile;
  profile.name = "card";
  for (const char* const name : {"a", "b"}) {
    auto table = LatencyTable::create({{1, Share{20}, 50, 60.0, 0.1},
                                       {4, Share{20}, 80, 90.0, 0.1},
                                       {1, Share{40}, 30, 33.0, 0.2},
                                       {4, Share{40}, 42, 50.0, 0.2}});
    profile.models.emplace(name, ModelProfile{std::move(table).value(), {}, 100.0});
  }
  return {{"card", profile}};
}

double latency_of(const ProfileSet& set, const char* model, std::uint32_t batch, int percent) {
  return set.at("card").find(model)->latency.latency_ms(batch, Share{percent}).value();
}

TEST(Corrections, MultiplyTheLatenciesOfTheirModel) {
  const ProfileSet profiles = card();
  const Corrections corrections{{"card", {{"a", {1.5, {{Share{40}, 2.0}}}}}}};
  const ProfileSet result = corrected(profiles, corrections);
  EXPECT_DOUBLE_EQ(latency_of(result, "a", 1, 20), 75) << "a size without a factor of its own";
  EXPECT_DOUBLE_EQ(latency_of(result, "a", 4, 40), 84);
  EXPECT_DOUBLE_EQ(latency_of(result, "b", 4, 40), 42) << "no correction";
  const LatencySample& sample = result.at("card").find("a")->latency.samples().front();
  EXPECT_DOUBLE_EQ(sample.p99_ms.value(), 90);
  EXPECT_DOUBLE_EQ(sample.cv.value(), 0.1);
  EXPECT_DOUBLE_EQ(factor_of(corrections, "card", "a", Share{40}), 2);
  EXPECT_DOUBLE_EQ(factor_of(corrections, "card", "a", Share{20}), 1.5);
  EXPECT_DOUBLE_EQ(factor_of(corrections, "card", "b", Share{20}), 1);
  EXPECT_DOUBLE_EQ(factor_of(corrections, "other", "a", Share{20}), 1);
}

TEST(Corrections, AreExactAtSizesBetweenMeasuredOnes) {
  const ProfileSet profiles = card();
  const ProfileSet result = corrected(profiles, {{"card", {{"a", {1, {{Share{30}, 1.4}}}}}}});
  for (const std::uint32_t batch : {1U, 2U, 4U}) {
    EXPECT_DOUBLE_EQ(latency_of(result, "a", batch, 30),
                     1.4 * latency_of(profiles, "a", batch, 30));
    EXPECT_DOUBLE_EQ(latency_of(result, "a", batch, 20), latency_of(profiles, "a", batch, 20));
  }
}

TEST(Corrections, OfUnknownModelsAndTypesChangeNothing) {
  const ProfileSet profiles = card();
  const ProfileSet result =
      corrected(profiles, {{"card", {{"c", {2, {}}}}}, {"gpu", {{"a", {2, {}}}}}});
  EXPECT_EQ(result.size(), 1U);
  EXPECT_EQ(result.at("card").find("a")->latency.samples(),
            profiles.at("card").find("a")->latency.samples());
}

}  // namespace
}  // namespace gpulet::profile::corrections_test
