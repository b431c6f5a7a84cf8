// The request monitor: an exponentially weighted estimate of one model's arrival rate. Pure; one
// thread at a time.
#pragma once

#include <cstdint>

#include "gpulet/core/time.h"

namespace gpulet::serve {

class RateMonitor {
 public:
  // `initial_rate` (per second) holds until arrivals say otherwise. Old arrivals lose weight with
  // `time_constant`.
  RateMonitor(double initial_rate, Duration time_constant)
      : rate_(initial_rate), time_constant_(time_constant) {}

  // Intervals count from now on. Until then, and until the first tick, the initial rate holds.
  void start(Time now) { last_tick_ = now; }

  void arrived() { ++arrivals_; }
  // As if this had been the rate for long.
  void expect(double rate) { rate_ = rate; }

  // Closes the interval since the last call (or since start()) and takes its arrivals into the
  // estimate.
  void tick(Time now);

  [[nodiscard]] double rate() const { return rate_; }

  // How far a Poisson process of `rate` strays from it in this estimate: its standard deviation,
  // per second.
  [[nodiscard]] double deviation_of(double rate) const;

 private:
  double rate_;
  Duration time_constant_;
  Time last_tick_{};
  std::uint64_t arrivals_ = 0;
};

}  // namespace gpulet::serve
