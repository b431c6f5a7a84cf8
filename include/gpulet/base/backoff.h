// Delays that double with every failure in a row. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gpulet/base/time.h"

namespace gpulet {

// The delay after that many (> 0) failures in a row: `first`, doubled up to `longest`.
[[nodiscard]] inline Duration backoff_after(std::uint32_t failures, Duration first,
                                            Duration longest) {
  for (; failures > 1 && first < longest; --failures) first *= 2;
  return std::min(first, longest);
}

}  // namespace gpulet
