#include "gpulet/batching/allowance.h"

#include <algorithm>

namespace gpulet::batching {

void Allowance::observe(Duration error) {
  const Duration distance = error > mean_ ? error - mean_ : mean_ - error;
  deviation_ += (distance - deviation_) / 4;
  mean_ += (error - mean_) / 8;
}

Duration Allowance::for_execution(Duration execution) const {
  constexpr Duration kLeast = std::chrono::microseconds(500);
  constexpr Duration kMost = std::chrono::milliseconds(2);
  return std::clamp(mean_ + 2 * deviation_, kLeast, kMost + execution / 4);
}

}  // namespace gpulet::batching
