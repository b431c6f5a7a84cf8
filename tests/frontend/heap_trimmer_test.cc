#include "frontend/loop/heap_trimmer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "gpulet/net/buffer_pool.h"
#include "tests/net/loop.h"

namespace gpulet::frontend {
namespace {

constexpr std::size_t kMegabyte = 1U << 20U;

constexpr Time after_seconds(std::size_t second) { return Time(std::chrono::seconds(second)); }

constexpr TrimDecision::Memory used(std::size_t bytes) { return {bytes, 0, 0}; }

TEST(TrimDecisionTest, WaitsForTheEndOfALoad) {
  TrimDecision decision;
  EXPECT_FALSE(decision.trim_now(0.01, used(40 * kMegabyte), after_seconds(11)));
  EXPECT_FALSE(decision.trim_now(0.9, used(100 * kMegabyte), after_seconds(12)));
  EXPECT_FALSE(decision.trim_now(0.9, used(40 * kMegabyte), after_seconds(13)));
  EXPECT_FALSE(decision.trim_now(0.01, used(40 * kMegabyte), after_seconds(14)))
      << "it may be a short pause";
  EXPECT_TRUE(decision.trim_now(0.01, used(40 * kMegabyte), after_seconds(15)));
}

TEST(TrimDecisionTest, WaitsUntilMemoryIsFreed) {
  TrimDecision decision;
  for (std::size_t second = 11; second < 20; ++second)
    EXPECT_FALSE(decision.trim_now(0.01, used(10 * second * kMegabyte), after_seconds(second)))
        << "a load that keeps the loop calm goes on";
  EXPECT_TRUE(decision.trim_now(0.01, used(40 * kMegabyte), after_seconds(21)));
}

TEST(TrimDecisionTest, IsNotRepeatedWhereItBringsNothing) {
  TrimDecision decision;
  (void)decision.trim_now(0, used(100 * kMegabyte), after_seconds(10));
  ASSERT_TRUE(decision.trim_now(0, used(90 * kMegabyte), after_seconds(11)));
  for (std::size_t second = 12; second < 60; ++second)
    EXPECT_FALSE(
        decision.trim_now(0, used((second % 2 == 0 ? 92 : 90) * kMegabyte), after_seconds(second)));
  EXPECT_TRUE(decision.trim_now(0, used(85 * kMegabyte), after_seconds(60)));
}

TEST(TrimDecisionTest, PausesBetweenTwoTrims) {
  TrimDecision decision;
  (void)decision.trim_now(0, used(30 * kMegabyte), after_seconds(10));
  ASSERT_TRUE(decision.trim_now(0, used(20 * kMegabyte), after_seconds(11)));
  EXPECT_FALSE(decision.trim_now(0, used(10 * kMegabyte), after_seconds(12)));
  EXPECT_TRUE(decision.trim_now(0, used(10 * kMegabyte), after_seconds(14)));
}

TEST(TrimDecisionTest, ReleasesStaleBuffersWheneverThereAreMany) {
  TrimDecision decision;
  const auto stale = [](std::size_t bytes) { return TrimDecision::Memory{0, 0, bytes}; };
  EXPECT_FALSE(decision.trim_now(0, stale(0), after_seconds(10)));
  EXPECT_FALSE(decision.trim_now(0, stale(2 * kMegabyte), after_seconds(11)));
  EXPECT_TRUE(decision.trim_now(0, stale(4 * kMegabyte), after_seconds(12)));
  EXPECT_FALSE(decision.trim_now(0, stale(0), after_seconds(15)));
  EXPECT_TRUE(decision.trim_now(0, stale(4 * kMegabyte), after_seconds(16)));
}

// Many small allocations leave pages that nobody uses, while little is used at any time.
TEST(TrimDecisionTest, FindsFreeMemoryThatStaysResident) {
  const auto free = [](std::size_t bytes) {
    return TrimDecision::Memory{20 * kMegabyte, 20 * kMegabyte + bytes, 0};
  };
  TrimDecision decision;
  EXPECT_FALSE(decision.trim_now(0, free(5 * kMegabyte), after_seconds(10)));
  EXPECT_FALSE(decision.trim_now(0, free(6 * kMegabyte), after_seconds(11)));
  EXPECT_TRUE(decision.trim_now(0, free(9 * kMegabyte), after_seconds(12)));
  for (std::size_t second = 13; second < 60; ++second)
    EXPECT_FALSE(decision.trim_now(0, free(9 * kMegabyte), after_seconds(second)))
        << "the trim brought nothing";
}

// Buffers that a cache keeps are in use for the C library. A load during which heaps are trimmed
// fills the cache again.
TEST(HeapTrimmerTest, ReleasesWhatACacheKeepsAfterEachLoad) {
  net::asio::io_context io;
  net::BufferPool pool({});
  BackgroundThread background(io);
  HeapTrimmer trimmer(io, background, {&pool}, nullptr);
  trimmer.start();
  for (int load = 0; load < 2; ++load) {
    std::ranges::fill(pool.take(64 * kMegabyte).value().view(), std::byte{1});
    ASSERT_GE(pool.idle_bytes(), 64 * kMegabyte);
    EXPECT_TRUE(net::testing::run_until(
        io, [&] { return pool.idle_bytes() == 0; }, std::chrono::seconds(30)));
  }
  trimmer.stop();
}

}  // namespace
}  // namespace gpulet::frontend
