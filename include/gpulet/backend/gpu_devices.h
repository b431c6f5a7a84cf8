// GpuDevices: the drivers of the GPUs that a backend's file describes. Asks NVML, and CUDA in a
// child of this process (gpu/ask_cuda.h), once, when the first is wanted. Blocking; one thread at a
// time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpulet/backend/setup.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/core/status.h"
#include "gpulet/gpu/ask_cuda.h"
#include "gpulet/gpu/nvml.h"
#include "gpulet/partition/driver.h"

namespace gpulet::backend {

struct GpuDevice {
  std::string uuid;
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
  // The same by green contexts. Fails also where the driver is too old for them, and with invalid
  // where a size is less than the GPU can give.
  [[nodiscard]] Result<GpuDevice> make_green(const config::DeviceConfig& described,
                                             std::uint32_t number);
  // The same by MIG. Fails also where MIG is off, or its instances may not be changed; and with
  // invalid where the GPU does not have those of the geometry.
  [[nodiscard]] Result<GpuDevice> make_mig(const config::DeviceConfig& described,
                                           std::uint32_t number);

 private:
  struct Machine {
    std::vector<gpu::GpuInfo> gpus;
    std::vector<gpu::CudaAnswer> cuda;  // beside gpus
    std::string driver_version;
  };
  struct Found {
    gpu::GpuInfo gpu;
    gpu::CudaAnswer cuda;
    std::uint64_t memory_bytes = 0;  // as GpuDevice
  };
  [[nodiscard]] static Result<Machine> look(const GpuPlaces& places);
  // Where MPS's pipes and logs go: made when it is first wanted.
  [[nodiscard]] Status find_mps_directory();
  // The GPU that is meant, which nobody else has, and which can be divided at all.
  [[nodiscard]] Result<Found> find(const config::DeviceConfig& described, std::uint32_t number);

  GpuPlaces places_;
  std::optional<Result<Machine>> machine_;
  std::set<std::string> taken_;  // by UUID
};

}  // namespace gpulet::backend
