#include "gpulet/observe/histogram.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace gpulet::observe {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

TEST(HistogramTest, EmptyHistogramHasNoPercentile) {
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

RC_GTEST_PROP(HistogramProperty, PercentileIsRightToSixPercent, ()) {
  auto samples = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint32_t>>(
      rc::gen::inRange<std::uint32_t>(0, 2'000'000'000)));
  const double fraction = *rc::gen::element(0.01, 0.5, 0.9, 0.99, 1.0);
  Histogram histogram;
  for (const std::uint32_t sample : samples) histogram.record(microseconds(sample));
  std::sort(samples.begin(), samples.end());
  const auto rank =
      static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(samples.size())));
  const double exact = samples[std::max<std::size_t>(rank, 1) - 1];
  const double told =
      std::chrono::duration<double, std::micro>(histogram.percentile(fraction)).count();
  RC_ASSERT(told >= exact);
  RC_ASSERT(told <= exact * 1.0625 + 1);
}

}  // namespace
}  // namespace gpulet::observe
