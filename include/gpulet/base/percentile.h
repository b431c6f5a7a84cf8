// Exact percentiles of samples, by nearest rank: the smallest sample that at least the given part
// of all samples does not exceed. Pure; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

namespace gpulet {

// Empty without samples. REQUIRES: 0 <= percent <= 100.
[[nodiscard]] inline std::optional<double> percentile(std::vector<double> samples, double percent) {
  if (samples.empty()) return std::nullopt;
  // Multiplies before it divides: 99 percent of 100 samples is exactly rank 99.
  const double rank = std::ceil(percent * static_cast<double>(samples.size()) / 100.0);
  const auto index = std::clamp<std::size_t>(static_cast<std::size_t>(rank), 1, samples.size()) - 1;
  const auto at = samples.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

}  // namespace gpulet
