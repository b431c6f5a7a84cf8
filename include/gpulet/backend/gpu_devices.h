// GpuDevices: makes the drivers of the GPUs in a backend's configuration. Queries NVML, and CUDA in
// a child process (gpu/cuda_driver.h), once, when the first driver is made. Blocking; one thread at
// a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/gpu/cuda_driver.h"
#include "gpulet/gpu/nvml.h"
#include "gpulet/partition/driver.h"
#include "gpulet/partition/drivers/drivers.h"

namespace gpulet::backend {

// NVIDIA's libraries and daemons on this machine. Tests replace them.
struct GpuEnvironment {
  std::filesystem::path nvml = gpu::Nvml::kLibrary;
  std::filesystem::path cuda = gpu::CudaDriver::kLibrary;
  // The query forks. A process with other threads queries before they start and passes the result.
  std::function<std::vector<gpu::CudaQueryResult>(const gpu::CudaQuery&)> query_cuda =
      gpu::query_cuda;
  // Without a directory: in /run for root, else in XDG_RUNTIME_DIR or the temporary directory.
  partition::MpsOptions mps{};
  Duration poll_interval = std::chrono::seconds(5);  // of GpuMonitor
};

struct GpuDevice {
  std::string uuid;
  std::unique_ptr<partition::PartitionDriver> driver;
  std::uint64_t memory_bytes = 0;  // from the configuration, else of the GPU
};

class GpuDevices {
 public:
  explicit GpuDevices(GpuEnvironment environment) : environment_(std::move(environment)) {}

  // Makes the driver of device `number` among those that `described` stands for, partitioned by
  // MPS, green contexts or MIG. Fails if NVML does not find that GPU, if the mechanism does not
  // work on it (MPS is not available, the driver is too old for green contexts, MIG is off or its
  // instances may not be changed), and with invalid if the GPU cannot give a configured size or
  // lacks an instance of the geometry. The message says how to fix that.
  [[nodiscard]] Result<GpuDevice> make(const config::DeviceConfig& described, std::uint32_t number);

 private:
  struct Machine {
    std::vector<gpu::GpuInfo> gpus;
    std::vector<gpu::CudaQueryResult> cuda;  // index-aligned with gpus
    std::string driver_version;
  };
  struct Found {
    gpu::GpuInfo gpu;
    gpu::CudaQueryResult cuda;
    std::uint64_t memory_bytes = 0;  // as GpuDevice
  };
  [[nodiscard]] static Result<Machine> query(const GpuEnvironment& environment);
  // Sets the directory of MPS's pipes and logs, and creates it if needed.
  [[nodiscard]] Status ensure_mps_directory();
  // The GPU of that device. Fails if another device has it or it cannot be divided.
  [[nodiscard]] Result<Found> find(const config::DeviceConfig& described, std::uint32_t number);

  using Driver = std::unique_ptr<partition::PartitionDriver>;
  [[nodiscard]] Result<Driver> make_mps(const Found& found);
  [[nodiscard]] static Result<Driver> make_green(const Found& found,
                                                 const config::DeviceConfig& described);
  [[nodiscard]] Result<Driver> make_mig(const Found& found, const config::DeviceConfig& described);

  GpuEnvironment environment_;
  std::optional<Result<Machine>> machine_;
  std::set<std::string> used_;  // UUIDs
};

}  // namespace gpulet::backend
