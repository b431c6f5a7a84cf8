// The current time of the engine's clock and of the machine's clock. Any thread.
#pragma once

#include <chrono>

#include "gpulet/net/event_loop.h"
#include "gpulet/observe/trace.h"

namespace gpulet::frontend {

[[nodiscard]] inline observe::WallClock wall_clock() {
  return {net::now(), std::chrono::system_clock::now().time_since_epoch()};
}

}  // namespace gpulet::frontend
