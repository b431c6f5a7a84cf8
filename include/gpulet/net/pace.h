// Pace: whether a peer sends the rest of what it began fast enough. A frame or body that is under
// way holds memory and a place, so each window of time must bring a share of it, and the whole has
// an end. Pure: the time is an argument. One thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "gpulet/core/time.h"

namespace gpulet::net {

struct PaceLimits {
  std::size_t bytes_per_second = 0;            // averaged over a window; 0: any
  Duration window = std::chrono::seconds(10);  // and what a sender has before it counts
  Duration longest{};                          // from the first byte to the last; zero: any
};

class Pace {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit Pace(const PaceLimits& limits);

  // The first byte of something came.
  void begin(TimePoint now);
  // It is whole.
  void end() { active_ = false; }
  [[nodiscard]] bool active() const { return active_; }
  void received(std::size_t bytes, TimePoint now);
  // From when on it is too slow, unless more comes before; max: never.
  [[nodiscard]] TimePoint deadline() const { return active_ ? deadline_ : TimePoint::max(); }
  // What is asked of senders, for an error.
  [[nodiscard]] std::string demand() const;

 private:
  void begin_window(TimePoint now);

  PaceLimits limits_;
  std::size_t bytes_of_window_;
  bool active_ = false;
  std::size_t missing_ = 0;  // of this window's bytes
  TimePoint end_;            // of the whole
  TimePoint deadline_;
};

}  // namespace gpulet::net
