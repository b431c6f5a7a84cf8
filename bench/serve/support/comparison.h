// Comparison: a load with a disturbance against the same load alone, and whether
// chance explains the difference. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/serve/support/traffic.h"

namespace gpulet::bench {

// The requests that were due in one second.
struct LoadSecond {
  std::vector<double> latencies_ms;  // of the served
  std::uint64_t offered = 0;
  std::uint64_t violations = 0;  // late, dropped or not served
};

// The whole seconds of a run from `from` on.
[[nodiscard]] std::vector<LoadSecond> seconds_of(const std::vector<Stream>& streams,
                                                 const TrafficResult& result, Duration from,
                                                 Duration until);

// Figures of a load. The errors are standard errors by a bootstrap over its seconds:
// requests of the same second depend on each other, seconds are nearly independent.
struct LoadFigures {
  std::uint64_t offered = 0;
  double p50_ms = 0;
  double p99_ms = 0;
  double p99_error_ms = 0;
  double violation = 0;  // of 1
  double violation_error = 0;
};
[[nodiscard]] LoadFigures figures_of(const std::vector<LoadSecond>& seconds, std::uint64_t seed);

// The limits for the figures of the disturbed load.
struct Allowed {
  double p99_ms = 0;
  double violation = 0;
};
// A tenth more than alone, plus an allowance for chance: two standard errors of the difference, at
// most kMostChance_ms and kMostChance.
inline constexpr double kWorseBy = 1.1;
inline constexpr double kMostChance_ms = 3;
inline constexpr double kMostChance = 0.003;
[[nodiscard]] Allowed allowed(const LoadFigures& alone, const LoadFigures& beside);

}  // namespace gpulet::bench
