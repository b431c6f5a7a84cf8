// NvmlCalls: the functions of NVIDIA's management library, initialised for the lifetime of the
// object.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "gpu/nvml_abi.h"
#include "gpu/shared_library.h"
#include "gpulet/base/status.h"

namespace gpulet::gpu {

class NvmlCalls {
 public:
  // Fails with unavailable and a one-line reason.
  [[nodiscard]] static Result<std::shared_ptr<const NvmlCalls>> load(
      const std::filesystem::path& library);
  ~NvmlCalls();
  NvmlCalls(const NvmlCalls&) = delete;
  NvmlCalls& operator=(const NvmlCalls&) = delete;

  // "<what> (<NVML's message and code>)", with the matching status code and a fix where one is
  // known.
  [[nodiscard]] Status failure(nvml_abi::Return code, const std::string& what) const;
  // "Unknown Error, NVML's 999"
  [[nodiscard]] std::string message(nvml_abi::Return code) const;
  // Fails with not_found for an unknown GPU.
  [[nodiscard]] Result<nvml_abi::Device> device(const std::string& uuid) const;
  [[nodiscard]] Result<std::string> text(nvml_abi::DeviceText* function,
                                         nvml_abi::Device device) const;
  // Fails with unavailable where the library is too old for MIG.
  [[nodiscard]] Status can_divide() const;

  nvml_abi::DriverVersion* driver_version = nullptr;
  nvml_abi::DeviceCount* device_count = nullptr;
  nvml_abi::DeviceByIndex* device_by_index = nullptr;
  nvml_abi::DeviceByUuid* device_by_uuid = nullptr;
  nvml_abi::DeviceText* device_uuid = nullptr;
  nvml_abi::DeviceText* device_name = nullptr;
  nvml_abi::DeviceMemory* device_memory = nullptr;
  nvml_abi::DeviceCapability* device_capability = nullptr;
  nvml_abi::DeviceComputeMode* device_compute_mode = nullptr;
  nvml_abi::DeviceClock* device_clock = nullptr;
  // nullptr where the library lacks them.
  nvml_abi::DevicePower* power_usage = nullptr;
  nvml_abi::DevicePower* power_limit = nullptr;
  nvml_abi::DeviceEnergy* energy = nullptr;
  // nullptr where the library is too old for MIG.
  nvml_abi::DeviceMigMode* device_mig_mode = nullptr;
  nvml_abi::DeviceProfile* instance_profile = nullptr;
  nvml_abi::DevicePlacements* possible_placements = nullptr;
  nvml_abi::DeviceInstances* instances_of_profile = nullptr;
  nvml_abi::DeviceInstanceById* instance_by_id = nullptr;
  nvml_abi::CreateInstance* create_instance = nullptr;
  nvml_abi::DestroyInstance* destroy_instance = nullptr;
  nvml_abi::InstanceInfo* instance_info = nullptr;
  nvml_abi::InstanceProfile* part_profile = nullptr;
  nvml_abi::InstanceParts* parts_of_profile = nullptr;
  nvml_abi::CreatePart* create_part = nullptr;
  nvml_abi::DestroyInstance* destroy_part = nullptr;
  nvml_abi::MigDeviceCount* mig_device_count = nullptr;
  nvml_abi::MigDeviceByIndex* mig_device_by_index = nullptr;
  nvml_abi::MigDeviceInstance* mig_device_instance = nullptr;
  // Also nullptr where the library lacks version 3.
  nvml_abi::RunningProcesses* running_processes = nullptr;

 private:
  explicit NvmlCalls(SharedLibrary library) : library_(std::move(library)) {}
  [[nodiscard]] Status find_functions();
  void find_optional_functions();

  SharedLibrary library_;
  bool initialised_ = false;
  bool has_mig_functions_ = false;
  nvml_abi::Init* init_ = nullptr;
  nvml_abi::Shutdown* shutdown_ = nullptr;
  nvml_abi::ErrorString* error_string_ = nullptr;
};

}  // namespace gpulet::gpu
