// Reminder: when something that lasts is worth a line in the log: at once, then at intervals that
// double. Pure; one thread.
#pragma once

#include <algorithm>

#include "gpulet/core/time.h"

namespace gpulet::observe {

class Reminder {
 public:
  // The interval after the first line, and the longest one.
  Reminder(Duration first, Duration longest) : first_(first), longest_(longest) {}

  [[nodiscard]] bool due(Time now) {
    if (now < next_) return false;
    interval_ = interval_ == Duration::zero() ? first_ : std::min(2 * interval_, longest_);
    next_ = now + interval_;
    return true;
  }
  // It is over, or something else now: the next line is due at once.
  void reset() {
    interval_ = {};
    next_ = Time::min();
  }

 private:
  Duration first_;
  Duration longest_;
  Duration interval_{};  // before the next line; zero: there was none
  Time next_ = Time::min();
};

}  // namespace gpulet::observe
