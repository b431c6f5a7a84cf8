#include "net/stream_pump.h"

#include <gtest/gtest.h>

namespace gpulet::net {
namespace {

using namespace std::chrono_literals;

const StandstillGrace::Clock::time_point kDue{1h};

TEST(StandstillGrace, ADeadlineCountsWhereItIsCheckedInTime) {
  StandstillGrace grace;
  EXPECT_TRUE(grace.counts(kDue, kDue));
  EXPECT_TRUE(grace.counts(kDue, kDue + StandstillGrace::kStandstill));
}

TEST(StandstillGrace, OneThatPassesInAStandstillCountsHalfASecondLater) {
  StandstillGrace grace;
  const auto woke = kDue + 10s;
  EXPECT_FALSE(grace.counts(kDue, woke));
  EXPECT_FALSE(grace.counts(woke, woke + StandstillGrace::kGrace - 1ms));
  EXPECT_TRUE(grace.counts(woke, woke + StandstillGrace::kGrace));
}

TEST(StandstillGrace, ThereIsOneForEachStandstill) {
  StandstillGrace grace;
  const auto woke = kDue + 10s;
  EXPECT_FALSE(grace.counts(kDue, woke));
  EXPECT_TRUE(grace.counts(woke, woke + 20s)) << "no byte has come since";
  grace.reset();
  EXPECT_FALSE(grace.counts(kDue, woke + 40s));
}

TEST(StandstillGrace, ASweepThatComesLateChecksNothingForAWhile) {
  StandstillGrace grace;
  EXPECT_TRUE(grace.counts_sweep(kDue, kDue + 10ms));
  const auto woke = kDue + 10s;
  EXPECT_FALSE(grace.counts_sweep(kDue, woke));
  EXPECT_FALSE(grace.counts_sweep(woke, woke + 100ms));
  const auto late = woke + StandstillGrace::kGrace;
  EXPECT_TRUE(grace.counts_sweep(woke, late)) << "sweeps that are always late check, too";
}

}  // namespace
}  // namespace gpulet::net
