// Exact percentiles of samples, by nearest rank: the smallest sample that at least the given part
// of all samples does not exceed. Pure; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

namespace gpulet {

// The index of that sample among `count` ascending ones. REQUIRES: count > 0, 0 <= percent <= 100.
// Multiplies before it divides: 99 percent of 100 samples is exactly rank 99.
[[nodiscard]] inline std::size_t percentile_index(std::size_t count, double percent) {
  const double rank = std::ceil(percent * static_cast<double>(count) / 100.0);
  return std::clamp<std::size_t>(static_cast<std::size_t>(rank), 1, count) - 1;
}

// Empty without samples.
[[nodiscard]] inline std::optional<double> percentile(std::vector<double> samples, double percent) {
  if (samples.empty()) return std::nullopt;
  const auto at =
      samples.begin() + static_cast<std::ptrdiff_t>(percentile_index(samples.size(), percent));
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

}  // namespace gpulet
