#include "frontend/loop_watch.h"

#include <gtest/gtest.h>

#include <chrono>

#include "gpulet/net/clock.h"
#include "tests/net/loop.h"

namespace gpulet::frontend {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Time at_second(double time) { return Time(from_seconds(time)); }

TEST(PauseBookTest, TellsTheLongestOfTheLastMinuteAndWhatRan) {
  PauseBook book;
  EXPECT_EQ(book.look(at_second(1)).longest, Duration::zero());
  book.record(milliseconds(30), "status", at_second(100));
  book.record(milliseconds(20), "metrics", at_second(100.5));
  book.record(milliseconds(8), "a plan", at_second(130));
  const LoopPauses pauses = book.look(at_second(130));
  EXPECT_EQ(pauses.longest, milliseconds(30));
  EXPECT_EQ(pauses.longest_ran, "status");
  EXPECT_EQ(book.look(at_second(165)).longest, milliseconds(8)) << "the longer one is forgotten";
  EXPECT_EQ(book.look(at_second(300)).longest, Duration::zero());
}

TEST(PauseBookTest, CountsTheLongOnesForEver) {
  PauseBook book;
  book.record(kLongPause, {}, at_second(1));
  book.record(kLongPause - Duration(1), {}, at_second(2));
  book.record(seconds(1), {}, at_second(500));
  EXPECT_EQ(book.look(at_second(1000)).long_ones, 2U);
}

// Holds the thread up.
void spin_for(Duration length) {
  const Time until = net::now() + length;
  while (net::now() < until) {
  }
}

TEST(LoopWatchTest, SeesAHandlerThatHoldsTheLoop) {
  net::testing::Loop loop;
  LoopWatch watch(loop.context());
  watch.start();
  net::asio::post(loop.executor(), [] { spin_for(milliseconds(60)); });
  EXPECT_TRUE(loop.run_until([&] { return watch.pauses().longest >= milliseconds(40); }));
  EXPECT_GE(watch.pauses().long_ones, 1U);
}

TEST(LoopWatchTest, NamesWhatRanWhereItIsTold) {
  net::testing::Loop loop;
  LoopWatch watch(loop.context());
  watch.start();
  net::asio::post(loop.executor(), [&] {
    const LoopWatch::Scope scope(watch, "a long one", net::now());
    spin_for(milliseconds(500));
  });
  EXPECT_TRUE(loop.run_until([&] { return watch.pauses().longest >= milliseconds(500); }));
  EXPECT_EQ(watch.pauses().longest_ran, "a long one");
}

}  // namespace
}  // namespace gpulet::frontend
