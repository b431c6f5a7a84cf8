// Percentiles of errors. Pure; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace gpulet::profile {

// The nearest rank. REQUIRES: values, ascending.
[[nodiscard]] inline double percentile(const std::vector<double>& values, double fraction) {
  const double rank = std::ceil(fraction * static_cast<double>(values.size()));
  return values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

}  // namespace gpulet::profile
