#include "frontend/loop/event_loop.h"

#include <gtest/gtest.h>

#include <chrono>

#include "gpulet/net/event_loop.h"
#include "tests/net/loop.h"

namespace gpulet::frontend {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Time at_second(double time) { return Time(from_seconds(time)); }

TEST(PauseHistoryTest, ReportsTheLongestPauseOfTheLastMinuteAndItsTask) {
  PauseHistory history;
  EXPECT_EQ(history.summary(at_second(1)).longest, Duration::zero());
  history.record(milliseconds(30), "status", at_second(100));
  history.record(milliseconds(20), "metrics", at_second(100.5));
  history.record(milliseconds(8), "a plan", at_second(130));
  const LoopPauses pauses = history.summary(at_second(130));
  EXPECT_EQ(pauses.longest, milliseconds(30));
  EXPECT_EQ(pauses.longest_task, "status");
  EXPECT_EQ(history.summary(at_second(165)).longest, milliseconds(8))
      << "the longer pause is too old";
  EXPECT_EQ(history.summary(at_second(300)).longest, Duration::zero());
}

TEST(PauseHistoryTest, CountsAllLongPauses) {
  PauseHistory history;
  history.record(kLongPause, {}, at_second(1));
  history.record(kLongPause - Duration(1), {}, at_second(2));
  history.record(seconds(1), {}, at_second(500));
  EXPECT_EQ(history.summary(at_second(1000)).long_pauses, 2U);
}

// Blocks the thread.
void spin_for(Duration length) {
  const Time until = net::now() + length;
  while (net::now() < until) {
  }
}

TEST(LoopWatchTest, MeasuresAHandlerThatBlocksTheLoop) {
  net::testing::Loop loop;
  LoopWatch watch(loop.context());
  watch.start();
  net::asio::post(loop.executor(), [] { spin_for(milliseconds(60)); });
  EXPECT_TRUE(loop.run_until([&] { return watch.pauses().longest >= milliseconds(40); }));
  EXPECT_GE(watch.pauses().long_pauses, 1U);
}

TEST(LoopWatchTest, NamesTheTaskOfAScope) {
  net::testing::Loop loop;
  LoopWatch watch(loop.context());
  watch.start();
  net::asio::post(loop.executor(), [&] {
    const LoopWatch::Scope scope(watch, "a long task", net::now());
    spin_for(milliseconds(500));
  });
  EXPECT_TRUE(loop.run_until([&] { return watch.pauses().longest >= milliseconds(500); }));
  EXPECT_EQ(watch.pauses().longest_task, "a long task");
}

}  // namespace
}  // namespace gpulet::frontend
