#include "frontend/machine_usage.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace gpulet::frontend {

// The first line sums all CPUs: user nice system idle iowait irq softirq steal. The guest times
// that follow are part of user.
std::optional<MachineWatch::CpuTimes> MachineWatch::cpu_times() const {
  constexpr int kTimes = 8;
  constexpr int kIdle = 3;
  constexpr int kIoWait = 4;
  std::ifstream file(proc_ / "stat");
  std::string name;
  if (!(file >> name) || name != "cpu") return std::nullopt;
  CpuTimes times;
  for (int i = 0; i < kTimes; ++i) {
    std::uint64_t ticks = 0;
    if (!(file >> ticks)) return std::nullopt;
    times.all += ticks;
    if (i == kIdle || i == kIoWait) times.idle += ticks;
  }
  return times;
}

void MachineWatch::read_memory(MachineUsage& usage) const {
  constexpr std::uint64_t kKilobyte = 1024;
  std::ifstream file(proc_ / "meminfo");
  std::optional<std::uint64_t> total;
  std::optional<std::uint64_t> available;
  std::string name;
  std::uint64_t kilobytes = 0;
  std::string rest;
  while (!(total && available) && file >> name >> kilobytes && std::getline(file, rest)) {
    if (name == "MemTotal:") total = kilobytes * kKilobyte;
    if (name == "MemAvailable:") available = kilobytes * kKilobyte;
  }
  usage.memory_total_bytes = total;
  if (total && available) usage.memory_used_bytes = *total - std::min(*total, *available);
}

MachineUsage MachineWatch::sample() {
  MachineUsage usage;
  read_memory(usage);
  const std::optional<CpuTimes> now = cpu_times();
  if (now && before_ && now->all > before_->all) {
    const auto all = static_cast<double>(now->all - before_->all);
    const auto idle = static_cast<double>(now->idle - std::min(now->idle, before_->idle));
    cpu_ = std::clamp(1 - idle / all, 0.0, 1.0);
  }
  if (now) before_ = now;
  usage.cpu = cpu_;
  return usage;
}

}  // namespace gpulet::frontend
