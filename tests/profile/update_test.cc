#include "gpulet/profile/update.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tuple>
#include <vector>

namespace gpulet::profile {
namespace {

ModelProfile table_only(std::vector<LatencySample> samples) {
  return {LatencyTable::create(std::move(samples)).value(), {}, std::nullopt};
}

Profile single_model(const std::string& model, std::vector<LatencySample> samples) {
  Profile profile;
  profile.name = "cpu";
  profile.models.emplace(model, table_only(std::move(samples)));
  return profile;
}

TEST(ProfileUpdate, AddsAModelAndLeavesTheOthersAlone) {
  Profile stored = single_model("a", {{1, Share{50}, 4}});
  stored.pairs.push_back({"a", 1, Share{50}, "a", 1, Share{50}, 5});
  stored.provenance = {{"date", "before"}, {"interference", "26 pairs"}};
  stored.pcie_gbps = 12;
  Profile measured = single_model("b", {{1, Share{50}, 7}});
  measured.provenance = {{"date", "now"}};
  const Profile both = updated(stored, measured, {{"b", {{Share{50}, 1}}}});
  EXPECT_EQ(both.find("a")->latency.latency_ms(1, Share{50}), 4);
  EXPECT_EQ(both.find("b")->latency.latency_ms(1, Share{50}), 7);
  EXPECT_EQ(both.pairs, stored.pairs);
  EXPECT_EQ(both.pcie_gbps, 12);
  EXPECT_EQ(both.provenance, (Provenance{{"date", "now"}, {"interference", "26 pairs"}}));
}

TEST(ProfileUpdate, ReplacesTheCellsThatWereAskedForAndKeepsTheRest) {
  const Profile stored = single_model("a", {{1, Share{20}, 4},
                                            {1, Share{50}, 2, std::nullopt, Doubt::busy},
                                            {2, Share{50}, 3},
                                            {4, Share{50}, 5}});
  // Batch 4 takes too long now: it was asked for and not measured.
  const Profile now = updated(stored, single_model("a", {{1, Share{50}, 1}, {2, Share{50}, 9}}),
                              {{"a", {{Share{50}, 1}, {Share{50}, 2}, {Share{50}, 4}}}});
  EXPECT_EQ(now.find("a")->latency.samples(),
            (std::vector<LatencySample>{{1, Share{20}, 4}, {1, Share{50}, 1}, {2, Share{50}, 9}}));
}

TEST(ProfileUpdate, WhatTheMeasurementDoesNotTellOfAModelStays) {
  Profile stored = single_model("a", {{1, Share{50}, 4}});
  ModelProfile& model = stored.models.at("a");
  model.memory_mb = 100;
  model.kernels = 7;
  model.controller = control::Plant{1, -1, 2};
  model.utilization = {{1, Share{100}, 0.25, 0.5}, {2, Share{100}, 0.5, 0.5}};
  Profile measured = single_model("a", {{1, Share{50}, 5}});
  measured.models.at("a").memory_mb = 120;
  measured.models.at("a").utilization = {{1, Share{100}, 0.75, 0.5}};
  const Profile both = updated(stored, measured, {{"a", {{Share{50}, 1}}}});
  const ModelProfile& now = *both.find("a");
  EXPECT_EQ(now.memory_mb, 120);
  EXPECT_EQ(now.kernels, 7);
  EXPECT_EQ(now.controller, model.controller);
  EXPECT_EQ(now.utilization,
            (std::vector<Utilization>{{1, Share{100}, 0.75, 0.5}, {2, Share{100}, 0.5, 0.5}}));
}

using Cells = std::map<std::pair<Share, std::uint32_t>, double>;

Cells any_cells() {
  Cells cells;
  for (const int size : {20, 40, 60}) {
    for (const std::uint32_t batch : {1U, 2U, 4U, 8U}) {
      if (*rc::gen::arbitrary<bool>()) cells[{Share{size}, batch}] = *rc::gen::inRange(1, 1000);
    }
  }
  return cells;
}

Profile of_cells(const Cells& cells) {
  std::vector<LatencySample> samples;
  for (const auto& [cell, ms] : cells) samples.push_back({cell.second, cell.first, ms});
  return single_model("a", std::move(samples));
}

RC_GTEST_PROP(ProfileUpdateProperty, EveryCellIsTheMeasuredOneOrOneThatNobodyAskedFor, ()) {
  const Cells before = any_cells();
  const Cells measured = any_cells();
  RC_PRE(!before.empty() && !measured.empty());
  std::set<std::pair<Share, std::uint32_t>> asked;
  Cells expected = measured;
  for (const auto& [cell, ms] : measured) asked.insert(cell);
  for (const auto& [cell, ms] : before) {
    if (*rc::gen::arbitrary<bool>()) asked.insert(cell);
    if (!asked.contains(cell)) expected.emplace(cell, ms);
  }
  const Profile now = updated(of_cells(before), of_cells(measured), {{"a", asked}});
  RC_ASSERT(now.find("a")->latency.samples() == of_cells(expected).find("a")->latency.samples());
}

}  // namespace
}  // namespace gpulet::profile
