// MachineWatch: how busy this machine's CPUs are and how full its memory is, from /proc. For
// dashboards made for Triton. One thread at a time; reads files of the kernel.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

namespace gpulet::frontend {

struct MachineUsage {
  std::optional<double> cpu;  // 0 to 1, of all CPUs since the look before; none at the first
  std::optional<std::uint64_t> memory_total_bytes;
  std::optional<std::uint64_t> memory_used_bytes;  // what is not available to new programs
};

class MachineWatch {
 public:
  explicit MachineWatch(std::filesystem::path proc = "/proc") : proc_(std::move(proc)) {}

  // What cannot be read is left out.
  [[nodiscard]] MachineUsage look();

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
