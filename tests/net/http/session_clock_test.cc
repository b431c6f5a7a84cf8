// The clock reads the time itself: a case looks before the deadline of an event that came after
// `before`, and at its deadline once the event is over.
#include "net/http/session_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>

namespace gpulet::net::http::session_clock_test {
namespace {

using namespace std::chrono_literals;

HttpServerOptions options() {
  HttpServerOptions options;
  options.header_timeout = 10s;
  options.progress_timeout = 20s;
  options.idle_timeout = 300s;
  options.first_timeout = 100s;
  return options;
}

class SessionClockTest : public ::testing::Test {
 protected:
  // What `happens` gives the peer this much time.
  void expect_time(Duration time, const std::function<void()>& happens) {
    const auto before = SessionClock::Clock::now();
    happens();
    EXPECT_FALSE(clock_->over(before + time - 1ns));
    EXPECT_TRUE(clock_->over(SessionClock::Clock::now() + time));
  }
  void begin(bool handshaking = false, bool reserved = false) {
    clock_.emplace(options_, handshaking, reserved);
  }

  HttpServerOptions options_ = options();
  std::optional<SessionClock> clock_;
};

TEST_F(SessionClockTest, ANewConnectionHasTheTimeoutOfTheFirstRequest) {
  expect_time(100s, [&] { begin(); });
  EXPECT_TRUE(clock_->silent());
  options_.first_timeout = 400s;
  expect_time(300s, [&] { begin(); });
}

TEST_F(SessionClockTest, AHandshakeHasTheTimeoutOfAHead) {
  expect_time(10s, [&] { begin(true); });
  const auto done = SessionClock::Clock::now() + 5s;
  clock_->handshake_done(done);
  EXPECT_FALSE(clock_->over(done + 100s - 1ns));
  EXPECT_TRUE(clock_->over(done + 100s));
  EXPECT_FALSE(clock_->may_park(done + 2s - 1ns));
  EXPECT_TRUE(clock_->may_park(done + 2s));
}

TEST_F(SessionClockTest, AReservedSlotIsFreeSoon) {
  expect_time(5s, [&] { begin(false, true); });
  expect_time(5s, [&] { begin(true, true); });
  options_.header_timeout = 3s;
  expect_time(3s, [&] { begin(true, true); });
}

TEST_F(SessionClockTest, ARequestHasTheTimeoutOfItsHeadThenOfItsBody) {
  begin();
  expect_time(10s, [&] { clock_->request_began(); });
  clock_->head_arrived();
  EXPECT_FALSE(clock_->silent());
  expect_time(20s, [&] { clock_->body_began(); });
  expect_time(20s, [&] { clock_->body_received(1); });
  EXPECT_FALSE(clock_->body_is_slow(SessionClock::Clock::now() + 24h)) << "without a pace";
}

TEST_F(SessionClockTest, NothingIsExpectedDuringAPause) {
  begin();
  clock_->request_began();
  clock_->pause();
  EXPECT_FALSE(clock_->over(SessionClock::Clock::now() + 24h));
}

TEST_F(SessionClockTest, ABodyKeepsItsPace) {
  options_.pace = {.bytes_per_second = 100, .window = 4s, .longest = 60s};
  begin();
  expect_time(4s, [&] { clock_->body_began(); });
  EXPECT_TRUE(clock_->body_is_slow(SessionClock::Clock::now() + 4s));
  const auto began = SessionClock::Clock::now();
  clock_->body_received(399);
  EXPECT_TRUE(clock_->over(began + 4s)) << "a byte short";
  expect_time(4s, [&] { clock_->body_received(1); });
  EXPECT_FALSE(clock_->demand().empty());
}

TEST_F(SessionClockTest, ABodyThatTricklesEndsAtItsLatest) {
  options_.pace = {.bytes_per_second = 0, .window = 4s, .longest = 30s};
  begin();
  clock_->body_began();
  const auto end = SessionClock::Clock::now() + 30s;
  options_.progress_timeout = 200s;
  clock_->body_received(1000);
  EXPECT_TRUE(clock_->over(end));
  EXPECT_TRUE(clock_->body_is_slow(end));
}

TEST_F(SessionClockTest, AnIdleConnectionParksBeforeItEnds) {
  begin();
  const auto before = SessionClock::Clock::now();
  EXPECT_FALSE(clock_->may_park(before + 24h)) << "it waits without a buffer already";
  clock_->head_arrived();
  expect_time(300s, [&] { clock_->became_idle(); });
  EXPECT_GE(clock_->idle_since(), before);
  EXPECT_FALSE(clock_->may_park(clock_->idle_since() + 2s - 1ns));
  EXPECT_TRUE(clock_->may_park(clock_->idle_since() + 2s));
}

TEST_F(SessionClockTest, LingersForASecondAtMost) {
  begin();
  expect_time(1s, [&] { clock_->linger(); });
  options_.progress_timeout = 500ms;
  expect_time(500ms, [&] { clock_->linger(); });
}

}  // namespace
}  // namespace gpulet::net::http::session_clock_test
