// Limits on log messages: LogRateLimiter for warnings that a peer can cause, LogBackoff for a
// condition that lasts. Pure: callers pass the time. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"

namespace gpulet::observe {

struct LogRateLimits {
  std::uint32_t burst = 5;
  Duration interval = std::chrono::seconds(10);  // between messages after the burst
  // The most pairs of peer and kind that have limits of their own; the others share one per kind.
  std::size_t max_entries = 4096;
};

// A token bucket for each pair of peer and kind of warning; counts the messages that it suppresses.
class LogRateLimiter {
 public:
  explicit LogRateLimiter(LogRateLimits limits = {}) : limits_(limits) {}

  // Empty: suppress the message. Otherwise log it, together with the returned number of messages
  // suppressed since the last logged one.
  [[nodiscard]] std::optional<std::uint64_t> admit(std::string_view peer, std::string_view kind,
                                                   Time now);

  struct Suppressed {
    std::string peer;
    std::string kind;
    std::uint64_t count = 0;
  };
  // Returns and resets the counts of pairs without a message for `interval`.
  [[nodiscard]] std::vector<Suppressed> take_suppressed(Time now);
  [[nodiscard]] bool has_suppressed() const { return suppressed_ > 0; }
  [[nodiscard]] std::size_t size() const { return records_.size(); }

 private:
  struct Record {
    double tokens = 0;
    Time last_message{};
    std::uint64_t suppressed = 0;
  };
  using Key = std::pair<std::string, std::string>;

  [[nodiscard]] Record& record_of(std::string_view peer, std::string_view kind, Time now);
  void erase_idle(Time now);

  LogRateLimits limits_;
  std::map<Key, Record> records_;
  std::uint64_t suppressed_ = 0;  // in all records
};

// Says when to log a condition that lasts: at once, then at intervals that double.
class LogBackoff {
 public:
  // The interval after the first message, and the longest interval.
  LogBackoff(Duration first, Duration longest) : first_(first), longest_(longest) {}

  [[nodiscard]] bool due(Time now) {
    if (now < next_) return false;
    interval_ = interval_ == Duration::zero() ? first_ : std::min(2 * interval_, longest_);
    next_ = now + interval_;
    return true;
  }
  // The condition ended or changed: the next message is due at once.
  void reset() {
    interval_ = {};
    next_ = Time::min();
  }

 private:
  Duration first_;
  Duration longest_;
  Duration interval_{};  // before the next message; zero: no message yet
  Time next_ = Time::min();
};

}  // namespace gpulet::observe
