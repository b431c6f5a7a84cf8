#include "gpulet/profile/latency_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace gpulet::profile {
namespace {

using testing::HasSubstr;

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

TEST(LatencyTable, ABatchBelowTheSmallestMeasuredCostsWhatTheSmallestDoes) {
  EXPECT_EQ(small_table().latency_ms(1, Share{100}), 15);
}

TEST(LatencyTable, InventsNothing) {
  const LatencyTable measured = small_table();
  EXPECT_EQ(measured.latency_ms(5, Share{20}), std::nullopt)
      << "beyond the largest batch of a size";
  EXPECT_EQ(measured.latency_ms(5, Share{30}), std::nullopt) << "one neighbour does not answer";
  EXPECT_EQ(measured.latency_ms(1, Share{19}), std::nullopt) << "below the smallest size";
  EXPECT_EQ(measured.latency_ms(0, Share{20}), std::nullopt) << "no batch at all";
  EXPECT_EQ(table({{1, Share{50}, 1}}).latency_ms(1, Share{51}), std::nullopt)
      << "above the largest size";
}

TEST(LatencyTable, UnderAQuotaAnswersForPartsOfADeviceThatNobodyMeasured) {
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

TEST(LatencyTable, LargestBatchIsTheLastThatAnswers) {
  const LatencyTable measured = small_table();
  EXPECT_EQ(measured.largest_batch(Share{20}), 4U);
  EXPECT_EQ(measured.largest_batch(Share{30}), 4U);
  EXPECT_EQ(measured.largest_batch(Share{70}), 2U);
  EXPECT_EQ(measured.largest_batch(Share{10}), 0U);
  EXPECT_EQ(table({{8, Share{50}, 1}}).largest_batch(Share{100}), 0U);
}

TEST(LatencyTable, RefusesWrongSamplesAndSaysWhich) {
  const auto message = [](std::vector<LatencySample> samples) {
    return LatencyTable::create(std::move(samples)).status().message();
  };
  EXPECT_THAT(message({}), HasSubstr("no latency samples"));
  EXPECT_THAT(message({{0, Share{20}, 1}}), HasSubstr("(batch 0, 20 %"));
  EXPECT_THAT(message({{1, Share{0}, 1}}), HasSubstr("1 to 100 %"));
  EXPECT_THAT(message({{1, Share{101}, 1}}), HasSubstr("101 %"));
  for (const double wrong : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(message({{1, Share{20}, wrong}}), HasSubstr("finite and above 0"));
    EXPECT_THAT(message({{1, Share{20}, 1, wrong}}), HasSubstr("finite and above 0"));
  }
  EXPECT_THAT(message({{1, Share{20}, 1}, {1, Share{20}, 2}}),
              HasSubstr("another sample of this cell"));
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

}  // namespace
}  // namespace gpulet::profile
