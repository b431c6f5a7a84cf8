// ReconnectBackoff: when a backend connects to its frontend again, and which attempts to log. Pure;
// one thread.
//
// A frontend that cannot be reached may be starting: the connector retries within seconds, and the
// log gets one line, then reminders. A frontend that closes the connection without a welcome, or
// refuses this backend, would do so again: the delay doubles up to a minute. The backend never
// gives up, because the frontend's side may be fixed: a name becomes free, a certificate is
// renewed.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "gpulet/base/time.h"
#include "gpulet/observe/log_limiter.h"

namespace gpulet::backend {

class ReconnectBackoff {
 public:
  static constexpr Duration kFirstReminder = std::chrono::seconds(10);
  static constexpr Duration kLongestReminder = std::chrono::minutes(10);
  static constexpr Duration kFirstDelay = std::chrono::seconds(2);
  static constexpr Duration kLongestDelay = std::chrono::minutes(1);

  // The frontend could not be reached. Returns whether to log it.
  [[nodiscard]] bool on_unreachable(Time now) {
    if (!unreachable_since_) {
      unreachable_since_ = now;
      reminder_.reset();
    }
    return reminder_.due(now);
  }

  // A connection ended. `refused`: without a welcome, or with a refusal. Returns the minimum delay
  // before the next attempt.
  [[nodiscard]] Duration on_closed(bool refused) {
    delay_ = refused ? std::clamp(2 * delay_, kFirstDelay, kLongestDelay) : Duration{};
    return delay_;
  }

  // The frontend welcomed this backend. Returns for how long it was unreachable; zero: it was not.
  [[nodiscard]] Duration on_welcome(Time now) {
    delay_ = {};
    const std::optional<Time> since = std::exchange(unreachable_since_, std::nullopt);
    return since ? now - *since : Duration{};
  }

 private:
  std::optional<Time> unreachable_since_;
  observe::LogBackoff reminder_{kFirstReminder, kLongestReminder};
  Duration delay_{};  // after the last refusal; zero: none
};

}  // namespace gpulet::backend
