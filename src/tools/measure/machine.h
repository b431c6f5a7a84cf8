// The devices of this machine on which gpulets can be created: CPU cores and NVIDIA GPUs. Only
// reads; may take seconds if the driver has to wake a GPU. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/gpu/cuda_driver.h"
#include "gpulet/gpu/nvml.h"

namespace gpulet::tools {

struct MachineGpu {
  gpu::GpuInfo info;
  std::optional<std::uint32_t> sms;  // empty: CUDA hides the GPU from this process
  Result<gpu::SmGroups> green;       // how green contexts can divide it, or why they cannot
  std::vector<gpu::MigDeviceInstance> instances{};  // MIG instances that this process may list
};

struct MachineDevices {
  std::vector<std::uint32_t> cores;  // that this process may use, ascending
  std::string no_gpus;               // the reason if there are none, otherwise empty
  std::vector<MachineGpu> gpus;
  std::string driver_version;                 // of NVIDIA's driver
  std::optional<std::uint32_t> cuda_version;  // supported by the driver: 13000 is 13.0
  Result<std::filesystem::path> mps_control;  // the control program of MPS
};

[[nodiscard]] MachineDevices find_machine_devices();

// Total memory from /proc/meminfo; 0: unknown.
[[nodiscard]] double machine_memory_mb();
// Memory for further processes from /proc/meminfo; 0: unknown.
[[nodiscard]] double available_memory_mb();
// The model of the CPU from /proc/cpuinfo, or the architecture.
[[nodiscard]] std::string cpu_model();

}  // namespace gpulet::tools
