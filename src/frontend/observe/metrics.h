// The text that the metrics endpoint returns (docs/metrics.md): the status in the text format of
// Prometheus, under gpulet's own names and under the names of Triton. Pure except for MachineWatch;
// any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "frontend/observe/status_json.h"
#include "gpulet/base/bytes.h"
#include "gpulet/serve/values/frontend_status.h"

namespace gpulet::frontend {

class MetricsSource {
 public:
  using OnPage = std::function<void(const Bytes&)>;

  // Calls `done` with the metrics page, now or later.
  virtual void metrics(OnPage done) = 0;

 protected:
  ~MetricsSource() = default;
};

struct MachineUsage {
  std::optional<double> cpu;  // busy fraction of all CPUs since the last sample; empty in the first
  std::optional<std::uint64_t> memory_total_bytes;
  std::optional<std::uint64_t> memory_used_bytes;  // total minus available
};

// CPU and memory usage from /proc (triton_metrics.cc). One thread at a time; blocks on file I/O.
class MachineWatch {
 public:
  explicit MachineWatch(std::filesystem::path proc = "/proc") : proc_(std::move(proc)) {}

  // Figures that cannot be read are empty.
  [[nodiscard]] MachineUsage sample();

 private:
  struct CpuTimes {  // in ticks since the machine's start
    std::uint64_t all = 0;
    std::uint64_t idle = 0;
  };
  [[nodiscard]] std::optional<CpuTimes> cpu_times() const;
  void read_memory(MachineUsage& usage) const;

  std::filesystem::path proc_;
  std::optional<CpuTimes> before_;
  std::optional<double> cpu_;
};

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
