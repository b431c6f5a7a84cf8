// The status document (docs/status.md). Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "frontend/cluster/cluster_link.h"
#include "frontend/loop/event_loop.h"
#include "gpulet/access/gate.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/serve/values/frontend_status.h"
#include "gpulet/serve/values/problems.h"

namespace gpulet::frontend {

// Lines that nothing took fast enough, since the start.
struct LogFigures {
  std::uint64_t dropped = 0;        // of the daemon's log
  std::uint64_t audit_dropped = 0;  // of the audit log
  Status audit_problem{};           // why the audit log is not being written; ok: it is
};

// What the daemon adds to the status of the core.
struct StatusContext {
  Time started{};           // start of the frontend
  Time now{};               // time of the status
  double unix_seconds = 0;  // wall-clock time of `now`
  std::size_t clients = 0;  // client connections
  LoopPauses pauses{};
  LogFigures logs{};
  access::CountersByClient by_token{};
  std::optional<ClusterView> cluster{};  // empty: the only frontend
};

[[nodiscard]] std::string status_json(const serve::FrontendStatus& status,
                                      const StatusContext& context);

// The problems of the core and, first, those that only the daemon knows.
[[nodiscard]] std::vector<serve::Problem> problems_of(const serve::FrontendStatus& status,
                                                      const StatusContext& context);

}  // namespace gpulet::frontend
