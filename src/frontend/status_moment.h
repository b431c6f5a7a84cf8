// When a status was taken, and what the shell around the core adds to it. Values; any thread.
#pragma once

#include <cstddef>

#include "gpulet/core/time.h"
#include "gpulet/net/gate.h"
#include "loop_watch.h"

namespace gpulet::frontend {

struct StatusMoment {
  Time started{};           // of the frontend
  Time now{};               // as in status(now)
  double unix_seconds = 0;  // what the clock on the wall shows now
  std::size_t clients = 0;  // connections
  LoopPauses pauses{};      // of the event loop
  net::CountersByClient by_token{};
};

}  // namespace gpulet::frontend
