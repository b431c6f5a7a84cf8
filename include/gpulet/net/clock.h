// The clock of the daemons, which tells engines what time it is. Any thread.
#pragma once

#include <chrono>

#include "gpulet/core/time.h"

namespace gpulet::net {

[[nodiscard]] inline Time now() {
  return Time(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace gpulet::net
