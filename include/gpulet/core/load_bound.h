// How long loading may take, for frontend and backend alike. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpulet/base/time.h"

namespace gpulet {

// The time in which a process must have loaded so many models, whose files have so many bytes
// together, and ended their first runs. `timeout`: for one small model.
[[nodiscard]] inline Duration load_bound(Duration timeout, std::size_t models,
                                         std::uint64_t file_bytes) {
  constexpr double kLeastBytesPerSecond = 20e6;
  // Whoever sends a wrong size cannot make the time overflow.
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40U;
  // Models of one process load one after the other, and most load fast.
  constexpr std::int64_t kPartOfFurther = 6;
  const auto further = static_cast<std::int64_t>(models > 0 ? models - 1 : 0);
  const double bytes = static_cast<double>(file_bytes < kMostBytes ? file_bytes : kMostBytes);
  return timeout + further * (timeout / kPartOfFurther) +
         from_seconds(bytes / kLeastBytesPerSecond);
}

}  // namespace gpulet
