// What the frontend's metrics endpoint answers (docs/metrics.md): the status in the text format
// that Prometheus reads, under names of our own and under those that users of Triton know.
#pragma once

#include <cstddef>
#include <string>

#include "gpulet/core/time.h"
#include "gpulet/net/gate.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

struct MetricsMoment {
  Time started;                                     // of the frontend
  Time now;                                         // as in status(now)
  double unix_seconds = 0;                          // what the clock on the wall shows now
  std::size_t clients = 0;                          // connections
  const net::CountersByClient* by_token = nullptr;  // null: not told
};

// The body; its type is kMetricsContentType.
[[nodiscard]] std::string metrics_text(const serve::FrontendStatus& status,
                                       const MetricsMoment& moment);

inline constexpr auto kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace gpulet::frontend
