// The text that the metrics endpoint returns (docs/metrics.md): the status in the text format of
// Prometheus, under gpulet's own names and under the names of Triton. Pure; any thread.
#pragma once

#include <string>

#include "frontend/machine_usage.h"
#include "frontend/status_json.h"
#include "gpulet/serve/frontend_status.h"

namespace gpulet::frontend {

struct MetricsExtras {
  MachineUsage machine{};
  bool summaries = false;  // adds summaries of latencies
};

// The Content-Type is kMetricsContentType.
[[nodiscard]] std::string metrics_text(const serve::FrontendStatus& status,
                                       const StatusContext& context,
                                       const MetricsExtras& extras = {});

inline constexpr auto kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace gpulet::frontend
