// The status document (docs/status.md). Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "frontend/cluster_link.h"
#include "frontend/event_loop.h"
#include "gpulet/base/time.h"
#include "gpulet/net/gate.h"
#include "gpulet/serve/frontend_status.h"

namespace gpulet::frontend {

// What the daemon adds to the status of the core.
struct StatusContext {
  Time started{};           // start of the frontend
  Time now{};               // time of the status
  double unix_seconds = 0;  // wall-clock time of `now`
  std::size_t clients = 0;  // client connections
  LoopPauses pauses{};
  net::CountersByClient by_token{};
  std::optional<ClusterView> cluster{};  // empty: the only frontend
};

[[nodiscard]] std::string status_json(const serve::FrontendStatus& status,
                                      const StatusContext& context);

}  // namespace gpulet::frontend
