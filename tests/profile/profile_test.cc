#include "gpulet/profile/profile.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/names.h"

namespace gpulet::profile {
namespace {

using support::names;

LatencyTable table(std::vector<LatencySample> samples) {
  auto created = LatencyTable::create(std::move(samples));
  EXPECT_TRUE(created.ok()) << created.status().to_string();
  return std::move(created).value();
}

LatencyTable small_table() {
  return table({{1, Share{20}, 50},
                {4, Share{20}, 80},
                {1, Share{40}, 30},
                {4, Share{40}, 42},
                {8, Share{40}, 70},
                {2, Share{100}, 15}});
}

TEST(LatencyTable, AnswersMeasuredCellsExactly) {
  const LatencyTable measured = small_table();
  for (const LatencySample& sample : measured.samples()) {
    EXPECT_EQ(measured.latency_ms(sample.batch, sample.share), sample.latency_ms);
  }
}

TEST(LatencyTable, IsLinearInTheBatchWithinASize) {
  EXPECT_DOUBLE_EQ(small_table().latency_ms(2, Share{20}).value(), 60);
  EXPECT_DOUBLE_EQ(small_table().latency_ms(7, Share{40}).value(), 63);
}

TEST(LatencyTable, IsLinearInTheInverseBetweenSizes) {
  // 1/30 lies at a third of the way from 1/40 to 1/20.
  EXPECT_DOUBLE_EQ(small_table().latency_ms(1, Share{30}).value(), 30 + (50 - 30) / 3.0);
  // Both ways at once: batch 2 takes 60 ms at 20 % and 34 ms at 40 %.
  EXPECT_DOUBLE_EQ(small_table().latency_ms(2, Share{30}).value(), 34 + (60 - 34) / 3.0);
}

TEST(LatencyTable, SmallBatchesCostAsMuchAsTheSmallestMeasured) {
  EXPECT_EQ(small_table().latency_ms(1, Share{100}), 15);
}

TEST(LatencyTable, InterpolatesTheVariationWhereItIsKnown) {
  const LatencyTable measured = table({{1, Share{20}, 50, std::nullopt, 0.1},
                                       {4, Share{20}, 80, std::nullopt, 0.4},
                                       {1, Share{40}, 30, std::nullopt, 0.2},
                                       {4, Share{40}, 42}});
  EXPECT_DOUBLE_EQ(measured.cv(2, Share{20}).value(), 0.2);
  EXPECT_DOUBLE_EQ(measured.cv(1, Share{30}).value(), 0.2 - 0.1 / 3);
  EXPECT_EQ(measured.cv(2, Share{40}), std::nullopt) << "unknown at one end";
  EXPECT_EQ(measured.cv(2, Share{30}), std::nullopt) << "unknown at one size";
  EXPECT_EQ(measured.cv(5, Share{20}), std::nullopt) << "no latency either";
  EXPECT_FALSE(LatencyTable::create({{1, Share{20}, 50, std::nullopt, -0.1}}).ok());
}

TEST(LatencyTable, DoesNotExtrapolate) {
  const LatencyTable measured = small_table();
  EXPECT_EQ(measured.latency_ms(5, Share{20}), std::nullopt)
      << "beyond the largest batch of a size";
  EXPECT_EQ(measured.latency_ms(5, Share{30}), std::nullopt) << "one neighbour does not answer";
  EXPECT_EQ(measured.latency_ms(1, Share{19}), std::nullopt) << "below the smallest size";
  EXPECT_EQ(measured.latency_ms(0, Share{20}), std::nullopt) << "no batch at all";
  EXPECT_EQ(table({{1, Share{50}, 1}}).latency_ms(1, Share{51}), std::nullopt)
      << "above the largest size";
}

TEST(LatencyTable, ExtrapolatesUnderAQuota) {
  const LatencyTable measured = small_table();
  const auto under = [&measured](double percent) {
    return measured.latency_under_quota_ms(1, percent).value();
  };
  EXPECT_DOUBLE_EQ(under(20), 50);
  EXPECT_DOUBLE_EQ(under(30), 30 + (50 - 30) / 3.0) << "between sizes as without";
  EXPECT_DOUBLE_EQ(under(37.5), 30 + (50 - 30) / 15.0);
  EXPECT_DOUBLE_EQ(under(10), 100) << "half the time of 20 %: the work takes twice as long";
  EXPECT_DOUBLE_EQ(under(0.5), 2000);
  EXPECT_EQ(table({{1, Share{50}, 8}}).latency_under_quota_ms(1, 75), 8.0)
      << "more than the largest measured";
  EXPECT_EQ(table({{1, Share{50}, 8}, {1, Share{100}, 9}}).latency_under_quota_ms(1, 50), 9.0)
      << "never faster than on all of it";
  EXPECT_EQ(measured.latency_under_quota_ms(0, 20), std::nullopt);
  EXPECT_EQ(measured.latency_under_quota_ms(5, 20), std::nullopt);
}

TEST(LatencyTable, LargestBatchIsTheLargestWithAnAnswer) {
  const LatencyTable measured = small_table();
  EXPECT_EQ(measured.largest_batch(Share{20}), 4U);
  EXPECT_EQ(measured.largest_batch(Share{30}), 4U);
  EXPECT_EQ(measured.largest_batch(Share{70}), 2U);
  EXPECT_EQ(measured.largest_batch(Share{10}), 0U);
  EXPECT_EQ(table({{8, Share{50}, 1}}).largest_batch(Share{100}), 0U);
}

TEST(LatencyTable, RefusesInvalidSamples) {
  const auto refusal = [](std::vector<LatencySample> samples) {
    return LatencyTable::create(std::move(samples)).status();
  };
  EXPECT_EQ(refusal({}).code(), StatusCode::invalid);
  EXPECT_TRUE(names(refusal({{0, Share{20}, 1}}), "batch 0", "20 %"));
  EXPECT_TRUE(names(refusal({{1, Share{0}, 1}}), "batch 1", "0 %"));
  EXPECT_TRUE(names(refusal({{1, Share{101}, 1}}), "101 %"));
  for (const double wrong : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(refusal({{1, Share{20}, wrong}}).code(), StatusCode::invalid) << wrong;
    EXPECT_EQ(refusal({{1, Share{20}, 1, wrong}}).code(), StatusCode::invalid) << wrong;
  }
  EXPECT_TRUE(names(refusal({{1, Share{20}, 1}, {1, Share{20}, 2}}), "batch 1", "20 %"));
  EXPECT_EQ(table({{1, Share{20}, 1}, {1, Share{20}, 1}}).samples().size(), 1U);
}

// Any table: distinct cells, latencies from a microsecond to 100 s.
rc::Gen<std::vector<LatencySample>> any_samples() {
  const auto cell = rc::gen::pair(rc::gen::inRange<std::uint32_t>(1, 65), rc::gen::inRange(1, 101));
  const auto latency =
      rc::gen::map(rc::gen::inRange(1, 100'000'000), [](int us) { return us / 1000.0; });
  return rc::gen::map(
      rc::gen::nonEmpty(
          rc::gen::container<std::map<std::pair<std::uint32_t, int>, double>>(cell, latency)),
      [](const std::map<std::pair<std::uint32_t, int>, double>& cells) {
        std::vector<LatencySample> samples;
        samples.reserve(cells.size());
        for (const auto& [where, ms] : cells)
          samples.push_back({where.first, Share{where.second}, ms});
        return samples;
      });
}

RC_GTEST_PROP(LatencyTableProperty, AnAnswerLiesBetweenMeasuredNeighbours, ()) {
  const LatencyTable measured = table(*any_samples());
  const auto batch = *rc::gen::inRange<std::uint32_t>(1, 70);
  const Share share{*rc::gen::inRange(1, 101)};
  const auto answer = measured.latency_ms(batch, share);
  RC_PRE(answer.has_value());
  // The neighbouring sizes, from the samples themselves, and on each the neighbouring batches.
  int below = 0;
  int above = 101;
  for (const LatencySample& sample : measured.samples()) {
    if (sample.share <= share) below = std::max(below, sample.share.percent);
    if (sample.share >= share) above = std::min(above, sample.share.percent);
  }
  double least = std::numeric_limits<double>::infinity();
  double most = 0;
  for (const int size : {below, above}) {
    std::optional<LatencySample> left;
    std::optional<LatencySample> right;
    for (const LatencySample& sample : measured.samples()) {  // by batch within a size
      if (sample.share.percent != size) continue;
      if (sample.batch <= batch) left = sample;
      if (sample.batch >= batch && !right) right = sample;
    }
    RC_ASSERT(right.has_value());
    for (const double ms : {left.value_or(*right).latency_ms, right->latency_ms}) {
      least = std::min(least, ms);
      most = std::max(most, ms);
    }
  }
  RC_ASSERT(*answer >= least * (1 - 1e-12));
  RC_ASSERT(*answer <= most * (1 + 1e-12));
}

RC_GTEST_PROP(LatencyTableProperty, AnswersReachExactlyToTheLargestBatch, ()) {
  const LatencyTable measured = table(*any_samples());
  const Share share{*rc::gen::inRange(1, 101)};
  const std::uint32_t largest = measured.largest_batch(share);
  for (std::uint32_t batch = 1; batch <= 66; ++batch) {
    RC_ASSERT(measured.latency_ms(batch, share).has_value() == (batch <= largest));
  }
}

RC_GTEST_PROP(LatencyTableProperty, TheOrderOfSamplesDoesNotMatter, ()) {
  std::vector<LatencySample> samples = *any_samples();
  const LatencyTable forwards = table(samples);
  std::reverse(samples.begin(), samples.end());
  RC_ASSERT(table(samples).samples() == forwards.samples());
}

ModelProfile table_only(std::vector<LatencySample> samples) {
  return {LatencyTable::create(std::move(samples)).value(), {}, std::nullopt};
}

Profile single_model(const std::string& model, std::vector<LatencySample> samples) {
  Profile profile;
  profile.name = "cpu";
  profile.models.emplace(model, table_only(std::move(samples)));
  return profile;
}

TEST(ProfileUpdate, AddsAModelAndKeepsTheOthers) {
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

TEST(ProfileUpdate, ReplacesRequestedCellsAndKeepsTheRest) {
  const Profile stored =
      single_model("a", {{1, Share{20}, 4},
                         {1, Share{50}, 2, std::nullopt, std::nullopt, Doubt::busy},
                         {2, Share{50}, 3},
                         {4, Share{50}, 5}});
  // Batch 4 takes too long now: it was asked for and not measured.
  const Profile now = updated(stored, single_model("a", {{1, Share{50}, 1}, {2, Share{50}, 9}}),
                              {{"a", {{Share{50}, 1}, {Share{50}, 2}, {Share{50}, 4}}}});
  EXPECT_EQ(now.find("a")->latency.samples(),
            (std::vector<LatencySample>{{1, Share{20}, 4}, {1, Share{50}, 1}, {2, Share{50}, 9}}));
}

TEST(ProfileUpdate, KeepsValuesThatWereNotMeasured) {
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
