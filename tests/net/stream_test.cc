#include "gpulet/net/stream.h"

#include <gtest/gtest.h>

namespace gpulet::net {
namespace {

using namespace std::chrono_literals;

constexpr Pace::TimePoint kStart{1h};

TEST(Pace, HasNoDeadlineWithoutLimits) {
  Pace pace({});
  EXPECT_EQ(pace.deadline(), Pace::TimePoint::max());
  pace.begin(kStart);
  EXPECT_EQ(pace.deadline(), Pace::TimePoint::max());
}

TEST(Pace, EndsAWindowWithTooFewBytes) {
  Pace pace({.bytes_per_second = 100, .window = 10s});
  pace.begin(kStart);
  pace.received(999, kStart + 9s);
  EXPECT_EQ(pace.deadline(), kStart + 10s);
  pace.end();
  EXPECT_EQ(pace.deadline(), Pace::TimePoint::max());
}

TEST(Pace, StartsAWindowOnceEnoughBytesArrived) {
  Pace pace({.bytes_per_second = 100, .window = 10s});
  pace.begin(kStart);
  pace.received(500, kStart + 4s);
  pace.received(500, kStart + 8s);
  EXPECT_EQ(pace.deadline(), kStart + 18s);
}

TEST(Pace, ABurstDoesNotAllowALaterPause) {
  Pace pace({.bytes_per_second = 100, .window = 10s});
  pace.begin(kStart);
  pace.received(1'000'000'000, kStart + 1s);
  for (int i = 2; i < 11; ++i) pace.received(1, kStart + i * 1s);
  EXPECT_EQ(pace.deadline(), kStart + 11s);
}

TEST(Pace, LimitsTheTotalTime) {
  Pace pace({.bytes_per_second = 100, .window = 10s, .longest = 30s});
  pace.begin(kStart);
  for (int i = 1; i < 30; ++i) pace.received(1000, kStart + i * 1s);
  EXPECT_EQ(pace.deadline(), kStart + 30s);
  pace.begin(kStart + 40s);
  EXPECT_EQ(pace.deadline(), kStart + 50s);
}

}  // namespace
}  // namespace gpulet::net
