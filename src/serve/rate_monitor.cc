#include "gpulet/serve/rate_monitor.h"

#include <cmath>

namespace gpulet::serve {

void RateMonitor::tick(Time now) {
  const double interval_s = to_seconds(now - last_tick_);
  last_tick_ = now;
  const auto arrivals = static_cast<double>(arrivals_);
  arrivals_ = 0;
  if (interval_s <= 0) return;
  const double weight = 1 - std::exp(-interval_s / to_seconds(time_constant_));
  rate_ += weight * (arrivals / interval_s - rate_);
}

double RateMonitor::deviation_of(double rate) const {
  // An exponential window of constant T averages over an effective 2 T of arrivals.
  return std::sqrt(rate / (2 * to_seconds(time_constant_)));
}

}  // namespace gpulet::serve
