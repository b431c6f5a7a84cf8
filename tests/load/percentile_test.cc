#include "gpulet/load/percentile.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace gpulet::load {
namespace {

Samples samples_of(const std::vector<double>& values) {
  Samples samples;
  for (const double value : values) samples.add(value);
  return samples;
}

TEST(Samples, WithoutAnyHaveNoPercentile) {
  EXPECT_EQ(Samples().percentile(50), std::nullopt);
  EXPECT_EQ(Samples().max(), std::nullopt);
}

TEST(Samples, GiveTheNearestRank) {
  Samples samples;
  for (int i = 100; i >= 1; --i) samples.add(i);
  EXPECT_EQ(samples.percentile(0), 1);
  EXPECT_EQ(samples.percentile(50), 50);
  EXPECT_EQ(samples.percentile(99), 99);
  EXPECT_EQ(samples.percentile(99.1), 100);
  EXPECT_EQ(samples.percentile(100), 100);
  EXPECT_EQ(samples.max(), 100);
  EXPECT_EQ(samples_of({3}).percentile(1), 3);
}

RC_GTEST_PROP(Samples, AreASampleThatEnoughOthersDoNotExceed, ()) {
  const auto values = *rc::gen::nonEmpty<std::vector<int>>();
  const auto percent = *rc::gen::inRange(0, 101);
  const double found = *samples_of({values.begin(), values.end()}).percentile(percent);
  const auto not_above =
      std::count_if(values.begin(), values.end(), [&](int value) { return value <= found; });
  const auto below =
      std::count_if(values.begin(), values.end(), [&](int value) { return value < found; });
  const auto count = static_cast<long>(values.size());
  RC_ASSERT(std::count(values.begin(), values.end(), static_cast<int>(found)) > 0);
  RC_ASSERT(100 * not_above >= percent * count);
  RC_ASSERT(below == 0 || 100 * below < percent * count);
}

}  // namespace
}  // namespace gpulet::load
