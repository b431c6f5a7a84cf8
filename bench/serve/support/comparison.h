// Comparison: a load with something beside it against the same load alone, and how much of the
// difference chance explains. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/serve/support/traffic.h"

namespace gpulet::bench {

// What was meant to be sent in one second.
struct LoadSecond {
  std::vector<double> latencies_ms;  // of the served
  std::uint64_t offered = 0;
  std::uint64_t violations = 0;  // late, dropped or not served
};

// The whole seconds of a run from `from` on.
[[nodiscard]] std::vector<LoadSecond> seconds_of(const std::vector<Stream>& streams,
                                                 const TrafficResult& result, Duration from,
                                                 Duration until);

// Figures of a load. The errors are standard errors by a bootstrap over its seconds: what happens
// in one second is not independent, what happens in different ones nearly is.
struct LoadFigures {
  std::uint64_t offered = 0;
  double p50_ms = 0;
  double p99_ms = 0;
  double p99_error_ms = 0;
  double violation = 0;  // of 1
  double violation_error = 0;
};
[[nodiscard]] LoadFigures figures_of(const std::vector<LoadSecond>& seconds, std::uint64_t seed);

// What the figures of the load with something beside it may be.
struct Allowed {
  double p99_ms = 0;
  double violation = 0;
};
// A tenth more than alone, and what chance explains: two standard errors of the difference, but at
// most kMostChance_ms and kMostChance.
inline constexpr double kWorseBy = 1.1;
inline constexpr double kMostChance_ms = 3;
inline constexpr double kMostChance = 0.003;
[[nodiscard]] Allowed allowed(const LoadFigures& alone, const LoadFigures& beside);

}  // namespace gpulet::bench
