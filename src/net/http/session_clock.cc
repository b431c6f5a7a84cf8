#include "net/http/session_clock.h"

#include <algorithm>

namespace gpulet::net::http {
namespace {

constexpr Duration kLinger = std::chrono::seconds(1);
constexpr Duration kReservedFor = std::chrono::seconds(5);  // without a request
constexpr Duration kParkAfter = std::chrono::seconds(2);

}  // namespace

SessionClock::SessionClock(const HttpServerOptions& options, bool handshaking, bool reserved)
    : options_(options),
      pace_(options.pace),
      deadline_(idle_since() + (handshaking ? options.header_timeout : idle_timeout())) {
  if (reserved) deadline_ = std::min(deadline_, idle_since() + kReservedFor);
}

Duration SessionClock::idle_timeout() const {
  return silent_ ? std::min(options_.first_timeout, options_.idle_timeout) : options_.idle_timeout;
}

void SessionClock::handshake_done(TimePoint now) {
  deadline_ = now + idle_timeout();
  park_at_ = std::min(park_at_, now + kParkAfter);
}

void SessionClock::request_began() { deadline_ = Clock::now() + options_.header_timeout; }

void SessionClock::body_began() {
  const TimePoint now = Clock::now();
  pace_.begin(now);
  deadline_ = std::min(now + options_.progress_timeout, pace_.deadline());
}

void SessionClock::body_received(std::size_t bytes) {
  const TimePoint now = Clock::now();
  pace_.received(bytes, now);
  deadline_ = std::min(now + options_.progress_timeout, pace_.deadline());
}

void SessionClock::became_idle() {
  const TimePoint now = Clock::now();
  idle_since_ = now;
  deadline_ = now + options_.idle_timeout;
  park_at_ = now + kParkAfter;
}

void SessionClock::linger() {
  deadline_ = Clock::now() + std::min(kLinger, options_.progress_timeout);
}

}  // namespace gpulet::net::http
