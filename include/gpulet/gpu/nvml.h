// Nvml: what NVIDIA's management library tells of this machine's GPUs. It is found at run time, so
// that one binary runs with and without a driver, and it only reads: no setting of a GPU is changed
// through it.
//
// A GPU is known by its UUID everywhere: ordinals differ between NVML, CUDA and the environment of
// a process. Failures: unavailable (no library, no driver, the GPU fell off the bus), not_found (no
// such GPU), internal (NVML's own words). One thread at a time; calls take micro- to milliseconds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/core/status.h"

namespace gpulet::gpu {

class NvmlCalls;  // the library's functions

struct GpuInfo {
  std::uint32_t number = 0;  // in the order of the PCI bus
  std::string uuid;          // "GPU-..."
  std::string name;          // "NVIDIA H200"
  std::uint64_t memory_bytes = 0;
  std::uint32_t compute_major = 0;  // compute capability
  std::uint32_t compute_minor = 0;
  bool mig_enabled = false;
  // Another process may make contexts on it (compute modes default and exclusive-process).
  bool shareable = true;
  // Why it cannot be used (lost, no permission, ...), in one line; empty where all is well. Of such
  // a GPU perhaps nothing but its number is known.
  std::string fault;
};

struct GpuMemory {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
};

struct GpuClocks {
  std::uint32_t sm_mhz = 0;
  std::uint32_t memory_mhz = 0;
};

// Each is empty where the GPU or the library does not tell it.
struct GpuPower {
  std::optional<double> usage_w;
  std::optional<double> limit_w;   // that is enforced
  std::optional<double> energy_j;  // since the driver was loaded
};

class Nvml {
 public:
  static constexpr const char* kLibrary = "libnvidia-ml.so.1";

  // Loads and initialises it. Fails with unavailable, in one line that says why there are no GPUs.
  [[nodiscard]] static Result<Nvml> load(const std::filesystem::path& library = kLibrary);

  [[nodiscard]] Result<std::string> driver_version() const;
  // All there are, by number, those with a fault among them; none at all is no failure.
  [[nodiscard]] Result<std::vector<GpuInfo>> gpus() const;
  [[nodiscard]] Result<GpuMemory> memory(const std::string& uuid) const;
  [[nodiscard]] Result<GpuClocks> clocks(const std::string& uuid) const;
  // Empty also where there is no such GPU.
  [[nodiscard]] GpuPower power(const std::string& uuid) const;

  Nvml(Nvml&&) noexcept;
  Nvml& operator=(Nvml&&) noexcept;
  ~Nvml();  // shuts it down

 private:
  explicit Nvml(std::shared_ptr<const NvmlCalls> calls);
  std::shared_ptr<const NvmlCalls> calls_;
};

// The GPU that a backend's file means: by number, or by the UUID or an unambiguous start of it;
// empty: the first without a fault. Fails with not_found, naming those that are there, with invalid
// where several begin so, and with unavailable, telling the fault of the one that is meant.
[[nodiscard]] Result<GpuInfo> choose_gpu(const std::vector<GpuInfo>& gpus,
                                         const std::string& wanted);

}  // namespace gpulet::gpu
