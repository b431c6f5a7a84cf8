// GpuDevices: the drivers of the GPUs that a backend's file describes. Asks NVML once, when the
// first is wanted. Blocking; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/backend/setup.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/core/status.h"
#include "gpulet/gpu/nvml.h"
#include "gpulet/partition/driver.h"

namespace gpulet::backend {

struct GpuDevice {
  std::unique_ptr<partition::PartitionDriver> driver;
  std::uint64_t memory_bytes = 0;  // that the file leaves to it, or that the GPU has
};

class GpuDevices {
 public:
  explicit GpuDevices(GpuPlaces places) : places_(std::move(places)) {}

  // The device `number` of those that `described` stands for, divided by mps. Fails where NVML does
  // not find that GPU, or MPS cannot be had on it: the message says what to do.
  [[nodiscard]] Result<GpuDevice> make_mps(const config::DeviceConfig& described,
                                           std::uint32_t number);

 private:
  struct Machine {
    std::vector<gpu::GpuInfo> gpus;
    std::string driver_version;
  };
  [[nodiscard]] static Result<Machine> look(const std::filesystem::path& nvml);

  GpuPlaces places_;
  std::optional<Result<Machine>> machine_;
};

}  // namespace gpulet::backend
