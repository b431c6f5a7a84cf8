#include "frontend/heap_trimmer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "tests/net/loop.h"

namespace gpulet::frontend {
namespace {

constexpr std::size_t kMegabyte = 1U << 20U;

constexpr Time after_seconds(std::size_t second) { return Time(std::chrono::seconds(second)); }

constexpr TrimDecision::Memory used(std::size_t bytes) { return {bytes, 0}; }

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

// Many small allocations leave pages that nobody uses, while little is used at any time.
TEST(TrimDecisionTest, FindsFreeMemoryThatStaysResident) {
  const auto free = [](std::size_t bytes) {
    return TrimDecision::Memory{20 * kMegabyte, 20 * kMegabyte + bytes};
  };
  TrimDecision decision;
  EXPECT_FALSE(decision.trim_now(0, free(5 * kMegabyte), after_seconds(10)));
  EXPECT_FALSE(decision.trim_now(0, free(6 * kMegabyte), after_seconds(11)));
  EXPECT_TRUE(decision.trim_now(0, free(9 * kMegabyte), after_seconds(12)));
  for (std::size_t second = 13; second < 60; ++second)
    EXPECT_FALSE(decision.trim_now(0, free(9 * kMegabyte), after_seconds(second)))
        << "the trim brought nothing";
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
