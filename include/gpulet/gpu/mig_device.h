// MigDevice: the instances of one GPU in MIG mode, as NVML reports, makes and destroys them.
//
// A GPU instance has compute slices (which name its profile) and covers memory slices from its
// start on; within it is one compute instance of all its slices, and that is what CUDA sees as a
// device of its own, by a UUID "MIG-...". Others of the GPU keep running while one is made or
// destroyed. MIG mode itself is never changed here.
//
// To make and destroy takes root, or NVIDIA's capability for MIG's configuration. Failures:
// not_found (no such GPU), unavailable (the driver is too old, MIG is off or not known to the GPU,
// no permission, an instance is in use, its place is taken, the GPU is lost; the message says what
// to do), invalid (the GPU has no such profile or placement), internal (NVML's own words). Any
// thread, one at a time; making and destroying may take seconds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/gpu/nvml.h"

namespace gpulet::gpu {

// A kind of instances, without extra engines or memory.
struct MigProfileInfo {
  std::uint32_t slices = 0;  // of compute
  std::uint32_t memory_slices = 0;
  std::uint32_t sms = 0;
  std::uint64_t memory_bytes = 0;
  std::vector<std::uint32_t> starts{};  // on the memory slices, ascending
};

struct MigDeviceInstance {
  std::uint32_t id = 0;  // of the GPU instance; unique on the GPU while it is there
  std::uint32_t slices = 0;
  std::uint32_t start = 0;
  std::uint32_t memory_slices = 0;
  std::uint32_t sms = 0;
  std::uint64_t memory_bytes = 0;
  // What CUDA_VISIBLE_DEVICES calls it; empty: no compute instance has all of it, so that nothing
  // can run on it as a whole.
  std::string uuid{};

  friend bool operator==(const MigDeviceInstance&, const MigDeviceInstance&) = default;
};

// "3g@4"
[[nodiscard]] std::string to_string(const MigDeviceInstance& instance);

class MigDevice {
 public:
  [[nodiscard]] static Result<MigDevice> open(
      const std::string& gpu_uuid, const std::filesystem::path& library = Nvml::kLibrary);

  // By slices. They stay as they are as long as MIG is on.
  [[nodiscard]] std::vector<MigProfileInfo> profiles() const;
  // All there are, whoever made them, by start.
  [[nodiscard]] Result<std::vector<MigDeviceInstance>> instances() const;
  // Leaves nothing behind where it fails.
  [[nodiscard]] Result<MigDeviceInstance> create(std::uint32_t slices, std::uint32_t start) const;
  // With its compute instances. One that is gone already is no failure.
  [[nodiscard]] Status destroy(const MigDeviceInstance& instance) const;

  MigDevice(MigDevice&&) noexcept;
  MigDevice& operator=(MigDevice&&) noexcept;
  ~MigDevice();

 private:
  class Impl;
  explicit MigDevice(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::gpu
