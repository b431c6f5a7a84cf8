// Nvml: information on this machine's GPUs from NVIDIA's management library. The library is loaded
// at run time, so one binary works with and without a driver. Nvml only reads: it changes no
// setting.
//
// GPUs are identified by UUID, because ordinals differ between NVML, CUDA and the environment of a
// process. Failures: unavailable (no library, no driver, the GPU fell off the bus), not_found (no
// such GPU), internal (NVML's message). One thread at a time; calls take micro- to milliseconds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"

namespace gpulet::gpu {

class NvmlCalls;

struct GpuInfo {
  std::uint32_t number = 0;  // in the order of the PCI bus
  std::string uuid;          // "GPU-..."
  std::string name;          // "NVIDIA H200"
  std::uint64_t memory_bytes = 0;
  std::uint32_t compute_major = 0;  // compute capability
  std::uint32_t compute_minor = 0;
  bool mig_enabled = false;
  // Another process may create contexts (compute modes default and exclusive-process).
  bool shareable = true;
  // The reason why the GPU is unusable (lost, no permission, ...), in one line; empty where it
  // works. The other fields of a faulty GPU may be unset, except its number.
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

// Values that the GPU or the library does not report are empty.
struct GpuPower {
  std::optional<double> usage_w;
  std::optional<double> limit_w;   // enforced limit
  std::optional<double> energy_j;  // since the driver was loaded
};

class Nvml {
 public:
  static constexpr const char* kLibrary = "libnvidia-ml.so.1";

  // Loads and initialises the library. Fails with unavailable and a one-line reason.
  [[nodiscard]] static Result<Nvml> load(const std::filesystem::path& library = kLibrary);

  [[nodiscard]] Result<std::string> driver_version() const;
  // All GPUs by number, including faulty ones. A machine without GPUs is not a failure.
  [[nodiscard]] Result<std::vector<GpuInfo>> gpus() const;
  [[nodiscard]] Result<GpuMemory> memory(const std::string& uuid) const;
  [[nodiscard]] Result<GpuClocks> clocks(const std::string& uuid) const;
  // Empty for an unknown GPU.
  [[nodiscard]] GpuPower power(const std::string& uuid) const;

 private:
  explicit Nvml(std::shared_ptr<const NvmlCalls> calls) : calls_(std::move(calls)) {}
  std::shared_ptr<const NvmlCalls> calls_;  // the last copy shuts the library down
};

// Selects a GPU by number, UUID, or unambiguous prefix of a UUID; an empty selector selects the
// first GPU without a fault. Fails with not_found (the message lists the GPUs), invalid (an
// ambiguous prefix) or unavailable (the fault of the selected GPU).
[[nodiscard]] Result<GpuInfo> choose_gpu(const std::vector<GpuInfo>& gpus,
                                         const std::string& selector);

// ---- MIG
//
// MigDevice: lists, creates and destroys the instances of one GPU in MIG mode, through NVML.
//
// A GPU instance has compute slices, which name its profile, and covers memory slices from its
// start on. It contains one compute instance with all of its slices, which CUDA sees as a device
// with a UUID "MIG-...". Other instances keep running while one is created or destroyed. The MIG
// mode is never changed.
//
// Creating and destroying requires root or NVIDIA's capability for the MIG configuration. Failures:
// not_found (no such GPU), unavailable (the driver is too old, MIG is off or unsupported, no
// permission, an instance is in use, its slices are taken, the GPU is lost; the message says what
// to do), invalid (no such profile or placement), internal (NVML's message). Any thread, one at a
// time; creating and destroying may take seconds.

// A profile without extra engines or memory.
struct MigProfileInfo {
  std::uint32_t slices = 0;  // compute slices
  std::uint32_t memory_slices = 0;
  std::uint32_t sms = 0;
  std::uint64_t memory_bytes = 0;
  std::vector<std::uint32_t> starts{};  // memory slices, ascending
};

struct MigDeviceInstance {
  std::uint32_t id = 0;  // of the GPU instance; unique on the GPU while it exists
  std::uint32_t slices = 0;
  std::uint32_t start = 0;
  std::uint32_t memory_slices = 0;
  std::uint32_t sms = 0;
  std::uint64_t memory_bytes = 0;
  // For CUDA_VISIBLE_DEVICES. Empty where no compute instance has all slices, so no process can use
  // the whole instance.
  std::string uuid{};

  friend bool operator==(const MigDeviceInstance&, const MigDeviceInstance&) = default;
};

// "3g@4"
[[nodiscard]] std::string to_string(const MigDeviceInstance& instance);

class MigDevice {
 public:
  [[nodiscard]] static Result<MigDevice> open(
      const std::string& gpu_uuid, const std::filesystem::path& library = Nvml::kLibrary);

  // Sorted by slices. They do not change while MIG is on.
  [[nodiscard]] std::vector<MigProfileInfo> profiles() const;
  // All instances of any origin, by start.
  [[nodiscard]] Result<std::vector<MigDeviceInstance>> instances() const;
  // Leaves nothing behind on failure.
  [[nodiscard]] Result<MigDeviceInstance> create(std::uint32_t slices, std::uint32_t start) const;
  // Also destroys its compute instances. Succeeds where the instance is already gone.
  [[nodiscard]] Status destroy(const MigDeviceInstance& instance) const;

 private:
  class Impl;
  explicit MigDevice(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace gpulet::gpu
