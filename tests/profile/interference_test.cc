#include "gpulet/profile/interference.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

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

TEST(MeasuredSlowdown, IsTheNearestPairsLatencyOverThatOfTheCellAlone) {
  const Profile profile = measured({{"a", 1, Share{20}, "b", 1, Share{80}, 11},
                                    {"a", 8, Share{20}, "b", 1, Share{80}, 12},
                                    {"a", 1, Share{20}, "b", 8, Share{80}, 13},
                                    {"a", 1, Share{80}, "b", 1, Share{20}, 14}});
  EXPECT_DOUBLE_EQ(measured_slowdown(profile, {"a", 1, Share{20}}, {"b", 1, Share{80}}), 1.1);
  EXPECT_DOUBLE_EQ(measured_slowdown(profile, {"a", 5, Share{20}}, {"b", 2, Share{80}}), 1.2);
  EXPECT_DOUBLE_EQ(measured_slowdown(profile, {"a", 2, Share{20}}, {"b", 16, Share{60}}), 1.3);
  EXPECT_DOUBLE_EQ(measured_slowdown(profile, {"a", 1, Share{60}}, {"b", 1, Share{40}}), 1.4);
}

TEST(MeasuredSlowdown, IsOneWhereNothingWasMeasured) {
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
}  // namespace gpulet::profile
