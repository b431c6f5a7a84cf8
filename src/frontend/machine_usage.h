// MachineWatch: CPU and memory usage of this machine, read from /proc. Exported under the names
// that dashboards for Triton expect. One thread at a time; blocks on file I/O.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

namespace gpulet::frontend {

struct MachineUsage {
  std::optional<double> cpu;  // busy fraction of all CPUs since the last sample; empty in the first
  std::optional<std::uint64_t> memory_total_bytes;
  std::optional<std::uint64_t> memory_used_bytes;  // total minus available
};

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

}  // namespace gpulet::frontend
