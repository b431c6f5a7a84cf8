// When a backend asks for its frontend again, and what of its attempts is worth a line in the log.
// Pure; one thread.
//
// A frontend that nobody finds may only be starting: the connector tries again within seconds, and
// the log gets one line, then reminders. A frontend that ends the connection without a welcome, or
// says why it refuses this backend, would do so again: it is asked at intervals that double up to a
// minute. It is never given up, as the cause may be removed at the other end: a name becomes free,
// a certificate is renewed.
#pragma once

#include <optional>

#include "gpulet/core/time.h"
#include "gpulet/observe/reminder.h"

namespace gpulet::backend {

class Reconnecting {
 public:
  static constexpr Duration kFirstReminder = std::chrono::seconds(10);
  static constexpr Duration kLongestReminder = std::chrono::minutes(10);
  static constexpr Duration kFirstPause = std::chrono::seconds(2);
  static constexpr Duration kLongestPause = std::chrono::minutes(1);

  // An attempt found nobody. Whether the log is to say so.
  [[nodiscard]] bool absent(Time now);
  // A connection ended. `refused`: without a welcome, or with a refusal. The least pause before the
  // next attempt.
  [[nodiscard]] Duration ended(bool refused);
  // The frontend welcomed this backend. How long it was absent; zero: it was there at once.
  [[nodiscard]] Duration welcomed(Time now);

 private:
  std::optional<Time> absent_since_;
  observe::Reminder reminder_{kFirstReminder, kLongestReminder};
  Duration pause_{};  // after the last refusal; zero: there was none
};

}  // namespace gpulet::backend
