#include "gpulet/observe/histogram.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace gpulet::observe {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(HistogramTest, ThePercentileOfAnEmptyHistogramIsZero) {
  EXPECT_EQ(Histogram().percentile(0.99), Duration::zero());
}

TEST(RecentHistogramTest, ForgetsAfterTwoWindows) {
  RecentHistogram histogram{seconds(10)};
  const Time start = Time(seconds(100));
  histogram.record(microseconds(500), start);
  EXPECT_EQ(histogram.recent(start + seconds(5)).count(), 1U);
  histogram.record(microseconds(900), start + seconds(12));
  EXPECT_EQ(histogram.recent(start + seconds(13)).count(), 2U);
  EXPECT_EQ(histogram.recent(start + seconds(40)).count(), 0U);
}

RC_GTEST_PROP(HistogramProperty, PercentilesAreExactToSixPercent, ()) {
  auto samples = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint32_t>>(
      rc::gen::inRange<std::uint32_t>(0, 2'000'000'000)));
  const double fraction = *rc::gen::element(0.01, 0.5, 0.9, 0.99, 1.0);
  Histogram histogram;
  for (const std::uint32_t sample : samples) histogram.record(microseconds(sample));
  std::sort(samples.begin(), samples.end());
  const auto rank =
      static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(samples.size())));
  const double exact = samples[std::max<std::size_t>(rank, 1) - 1];
  const double estimate =
      std::chrono::duration<double, std::micro>(histogram.percentile(fraction)).count();
  RC_ASSERT(estimate >= exact);
  RC_ASSERT(estimate <= exact * 1.0625 + 1);
}

TEST(BucketHistogramTest, BoundsReachFromHalfAMillisecondToHalfAMinute) {
  EXPECT_EQ(BucketHistogram::bound(0), microseconds(500));
  EXPECT_EQ(BucketHistogram::bound(1), milliseconds(1));
  EXPECT_GE(BucketHistogram::bound(BucketHistogram::kBounds - 1), seconds(30));
}

RC_GTEST_PROP(BucketHistogramProperty, CountsTheValuesUpToEachBound, ()) {
  const auto nanoseconds = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::oneOf(
      rc::gen::inRange<std::int64_t>(-10, 3'000'000),
      rc::gen::inRange<std::int64_t>(0, 100'000'000'000),
      rc::gen::map(rc::gen::inRange<std::size_t>(0, BucketHistogram::kBounds),
                   [](std::size_t i) { return BucketHistogram::bound(i).count(); })));
  BucketHistogram histogram;
  std::int64_t sum = 0;
  for (const std::int64_t value : nanoseconds) {
    histogram.record(Duration(value));
    sum += std::max<std::int64_t>(0, value);
  }
  RC_ASSERT(histogram.count() == nanoseconds.size());
  RC_ASSERT(histogram.sum().nanoseconds() == static_cast<std::uint64_t>(sum));
  const auto cumulative = histogram.cumulative();
  for (std::size_t i = 0; i < cumulative.size(); ++i) {
    const auto within = std::count_if(
        nanoseconds.begin(), nanoseconds.end(),
        [i](std::int64_t value) { return Duration(value) <= BucketHistogram::bound(i); });
    RC_ASSERT(cumulative[i] == static_cast<std::uint64_t>(within));
  }
}

constexpr Time at_s(double time_s) { return Time(from_seconds(time_s)); }

TEST(RecentSums, ForgetsAfterAMinute) {
  RecentSums<2> sums;
  sums.add(0, 3, at_s(1));
  sums.add(1, 5, at_s(12));
  EXPECT_EQ(sums.last(at_s(59)), (RecentSums<2>::Sums{3, 5}));
  EXPECT_EQ(sums.last(at_s(60)), (RecentSums<2>::Sums{0, 5}));
  EXPECT_EQ(sums.last(at_s(70)), (RecentSums<2>::Sums{0, 0}));
}

TEST(RecentSums, CountsOnlyTheRequestedSlices) {
  RecentSums<1> sums;
  for (int second = 0; second < 60; second += 10) sums.add(0, 1, at_s(second));
  EXPECT_EQ(sums.last(at_s(55), 2)[0], 2U);
  EXPECT_EQ(sums.last(at_s(55))[0], 6U);
}

RC_GTEST_PROP(RecentSums, SumsTheSlicesOfTheLastMinute, ()) {
  RecentSums<1> sums;
  std::map<std::int64_t, std::uint64_t> added;  // by slice
  std::int64_t second = 0;
  for (const auto& [wait, amount] :
       *rc::gen::container<std::vector<std::pair<std::uint8_t, std::uint8_t>>>(
           rc::gen::arbitrary<std::pair<std::uint8_t, std::uint8_t>>())) {
    second += wait % 40;
    sums.add(0, amount, Time(std::chrono::seconds(second)));
    added[second / 10] += amount;
    std::uint64_t expected = 0;
    for (std::int64_t slice = second / 10 - 5; slice <= second / 10; ++slice) {
      if (added.contains(slice)) expected += added.at(slice);
    }
    RC_ASSERT(sums.last(Time(std::chrono::seconds(second)))[0] == expected);
  }
}

}  // namespace
}  // namespace gpulet::observe
