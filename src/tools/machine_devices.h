// What this machine has that gpulets can be made on: CPU cores and NVIDIA GPUs. Where there are no
// GPUs, or one cannot be divided, one line says why. Reads, and changes nothing; may take seconds
// where the driver wakes a GPU for it. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/gpu/cuda_driver.h"
#include "gpulet/gpu/mig_device.h"
#include "gpulet/gpu/nvml.h"

namespace gpulet::tools {

struct MachineGpu {
  gpu::GpuInfo info;
  std::optional<std::uint32_t> sms;  // nothing: CUDA does not show it to this process
  Result<gpu::SmGroups> green;       // into what green contexts can divide it
  // Into what MIG has divided it, as far as this process may know.
  std::vector<gpu::MigDeviceInstance> instances{};
};

struct MachineDevices {
  std::vector<std::uint32_t> cores;  // that this process may use, ascending
  std::string no_gpus;               // why there are none; empty where there are
  std::vector<MachineGpu> gpus;
  std::string driver_version;                 // NVIDIA's
  std::optional<std::uint32_t> cuda_version;  // of the driver: 13000 is 13.0
  Result<std::filesystem::path> mps_control;  // where MPS's control program is
};

[[nodiscard]] MachineDevices find_machine_devices();

}  // namespace gpulet::tools
