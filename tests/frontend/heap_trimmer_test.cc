#include "frontend/heap_trimmer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "tests/net/loop.h"

namespace gpulet::frontend {
namespace {

constexpr std::size_t kMegabyte = 1U << 20U;

constexpr Time after_seconds(std::size_t second) { return Time(std::chrono::seconds(second)); }

TEST(TrimDecisionTest, WaitsForTheEndOfALoad) {
  TrimDecision decision;
  EXPECT_FALSE(decision.trim_now(0.01, 40 * kMegabyte, after_seconds(11)));
  EXPECT_FALSE(decision.trim_now(0.9, 100 * kMegabyte, after_seconds(12)));
  EXPECT_FALSE(decision.trim_now(0.9, 40 * kMegabyte, after_seconds(13)));
  EXPECT_FALSE(decision.trim_now(0.01, 40 * kMegabyte, after_seconds(14)))
      << "it may be a short pause";
  EXPECT_TRUE(decision.trim_now(0.01, 40 * kMegabyte, after_seconds(15)));
}

TEST(TrimDecisionTest, WaitsUntilMemoryIsFreed) {
  TrimDecision decision;
  for (std::size_t second = 11; second < 20; ++second)
    EXPECT_FALSE(decision.trim_now(0.01, 10 * second * kMegabyte, after_seconds(second)))
        << "a load that keeps the loop calm goes on";
  EXPECT_TRUE(decision.trim_now(0.01, 40 * kMegabyte, after_seconds(21)));
}

TEST(TrimDecisionTest, IsNotRepeatedWhereItBringsNothing) {
  TrimDecision decision;
  (void)decision.trim_now(0, 100 * kMegabyte, after_seconds(10));
  ASSERT_TRUE(decision.trim_now(0, 90 * kMegabyte, after_seconds(11)));
  for (std::size_t second = 12; second < 60; ++second)
    EXPECT_FALSE(
        decision.trim_now(0, (second % 2 == 0 ? 92 : 90) * kMegabyte, after_seconds(second)));
  EXPECT_TRUE(decision.trim_now(0, 85 * kMegabyte, after_seconds(60)));
}

TEST(TrimDecisionTest, PausesBetweenTwoTrims) {
  TrimDecision decision;
  (void)decision.trim_now(0, 30 * kMegabyte, after_seconds(10));
  ASSERT_TRUE(decision.trim_now(0, 20 * kMegabyte, after_seconds(11)));
  EXPECT_FALSE(decision.trim_now(0, 10 * kMegabyte, after_seconds(12)));
  EXPECT_TRUE(decision.trim_now(0, 10 * kMegabyte, after_seconds(14)));
}

// Buffers that a cache keeps are in use for the C library.
TEST(HeapTrimmerTest, ReleasesWhatACacheKeepsAfterALoad) {
  net::asio::io_context io;
  std::vector<char> buffer(64 * kMegabyte);
  std::atomic<std::size_t> idle = 0;
  std::atomic<bool> released = false;
  BackgroundThread background(io);
  HeapTrimmer trimmer(io, background,
                      {[&] {
                         idle = 0;
                         released = true;
                       },
                       [&] { return idle.load(); }},
                      nullptr);
  trimmer.start();
  net::Alarm load_ends(io);
  load_ends.set_after(std::chrono::milliseconds(1500), [&] { idle = buffer.size(); });
  EXPECT_TRUE(net::testing::run_until(
      io, [&] { return released.load(); }, std::chrono::seconds(20)));
  trimmer.stop();
}

}  // namespace
}  // namespace gpulet::frontend
