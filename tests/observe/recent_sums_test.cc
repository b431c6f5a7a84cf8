#include "gpulet/observe/recent_sums.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace gpulet::observe {
namespace {

constexpr Time at_s(double seconds) { return Time(from_seconds(seconds)); }

TEST(RecentSums, ForgetsAfterAMinute) {
  RecentSums<2> sums;
  sums.add(0, 3, at_s(1));
  sums.add(1, 5, at_s(12));
  EXPECT_EQ(sums.last(at_s(59)), (RecentSums<2>::Sums{3, 5}));
  EXPECT_EQ(sums.last(at_s(60)), (RecentSums<2>::Sums{0, 5}));
  EXPECT_EQ(sums.last(at_s(70)), (RecentSums<2>::Sums{0, 0}));
}

TEST(RecentSums, CountsOnlyTheLastSlicesThatAreAskedFor) {
  RecentSums<1> sums;
  for (int second = 0; second < 60; second += 10) sums.add(0, 1, at_s(second));
  EXPECT_EQ(sums.last(at_s(55), 2)[0], 2U);
  EXPECT_EQ(sums.last(at_s(55))[0], 6U);
}

RC_GTEST_PROP(RecentSums, HoldsWhatWasAddedInTheSlicesOfTheLastMinute, ()) {
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
