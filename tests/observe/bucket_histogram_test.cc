#include "gpulet/observe/bucket_histogram.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace gpulet::observe {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(BucketHistogramTest, BoundsReachFromHalfAMillisecondToHalfAMinute) {
  EXPECT_EQ(BucketHistogram::bound(0), microseconds(500));
  EXPECT_EQ(BucketHistogram::bound(1), milliseconds(1));
  EXPECT_GE(BucketHistogram::bound(BucketHistogram::kBounds - 1), seconds(30));
}

RC_GTEST_PROP(BucketHistogramProperty, CountsWhatDoesNotExceedEachBound, ()) {
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

}  // namespace
}  // namespace gpulet::observe
