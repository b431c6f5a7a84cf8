// What the frontend's metrics endpoint answers (docs/metrics.md): the status in the text format
// that Prometheus reads, under names of our own and under those that users of Triton know.
#pragma once

#include <string>

#include "gpulet/serve/frontend_status.h"
#include "machine_usage.h"
#include "status_moment.h"

namespace gpulet::frontend {

// What is told besides the status.
struct MetricsExtras {
  MachineUsage machine{};
  bool summaries = false;  // latencies as summaries too
};

// The body; its type is kMetricsContentType.
[[nodiscard]] std::string metrics_text(const serve::FrontendStatus& status,
                                       const StatusMoment& moment,
                                       const MetricsExtras& extras = {});

inline constexpr auto kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace gpulet::frontend
