#include "gpu/nvml_calls.h"

#include <array>

namespace gpulet::gpu {
namespace {

namespace abi = nvml_abi;

constexpr std::size_t kLongestText = 96;  // the buffer size for names and UUIDs in nvml.h

// Errors with a known fix.
struct KnownError {
  abi::Return code;
  StatusCode status;
  const char* fix;
};
constexpr KnownError kKnownErrors[] = {
    {abi::kDriverNotLoaded, StatusCode::unavailable,
     "load its kernel module (modprobe nvidia), or give the container access to its GPUs"},
    {abi::kVersionMismatch, StatusCode::unavailable,
     "load the kernel module of the installed driver, or restart the machine"},
    {abi::kLibraryNotFound, StatusCode::unavailable, "install NVIDIA's driver as a complete"},
    {abi::kNoPermission, StatusCode::unavailable, "let this user open /dev/nvidia*"},
    {abi::kGpuIsLost, StatusCode::unavailable,
     "check the kernel log for Xid errors, and restart the machine"},
    {abi::kResetRequired, StatusCode::unavailable, "reset the GPU, or restart the machine"},
    {abi::kUninitialized, StatusCode::unavailable, "reload the driver"},
};

}  // namespace

Result<std::shared_ptr<const NvmlCalls>> NvmlCalls::load(const std::filesystem::path& library) {
  GPULET_TRY(SharedLibrary opened,
             SharedLibrary::open_driver(library, "cannot load NVIDIA's management library ("));
  const std::shared_ptr<NvmlCalls> calls(new NvmlCalls(std::move(opened)));
  if (Status found = calls->find_functions(); !found.ok()) return found;
  if (const abi::Return code = calls->init_(); code != abi::kSuccess)
    return calls->failure(code, "cannot initialise NVIDIA's driver");
  calls->initialised_ = true;
  calls->find_optional_functions();
  return std::shared_ptr<const NvmlCalls>(calls);
}

NvmlCalls::~NvmlCalls() {
  if (initialised_) (void)shutdown_();
}

Status NvmlCalls::find_functions() {
  Symbols symbols(library_);
  symbols.require("nvmlInit_v2", init_);
  symbols.require("nvmlShutdown", shutdown_);
  symbols.require("nvmlErrorString", error_string_);
  symbols.require("nvmlSystemGetDriverVersion", driver_version);
  symbols.require("nvmlDeviceGetCount_v2", device_count);
  symbols.require("nvmlDeviceGetHandleByIndex_v2", device_by_index);
  symbols.require("nvmlDeviceGetHandleByUUID", device_by_uuid);
  symbols.require("nvmlDeviceGetUUID", device_uuid);
  symbols.require("nvmlDeviceGetName", device_name);
  symbols.require("nvmlDeviceGetMemoryInfo", device_memory);
  symbols.require("nvmlDeviceGetCudaComputeCapability", device_capability);
  symbols.require("nvmlDeviceGetComputeMode", device_compute_mode);
  symbols.require("nvmlDeviceGetClockInfo", device_clock);
  return symbols.status();
}

void NvmlCalls::find_optional_functions() {
  Symbols symbols(library_);
  symbols.require("nvmlDeviceGetMigMode", device_mig_mode);
  symbols.require("nvmlDeviceGetGpuInstanceProfileInfo", instance_profile);
  symbols.require("nvmlDeviceGetGpuInstancePossiblePlacements_v2", possible_placements);
  symbols.require("nvmlDeviceGetGpuInstances", instances_of_profile);
  symbols.require("nvmlDeviceGetGpuInstanceById", instance_by_id);
  symbols.require("nvmlDeviceCreateGpuInstanceWithPlacement", create_instance);
  symbols.require("nvmlGpuInstanceDestroy", destroy_instance);
  symbols.require("nvmlGpuInstanceGetInfo", instance_info);
  symbols.require("nvmlGpuInstanceGetComputeInstanceProfileInfo", part_profile);
  symbols.require("nvmlGpuInstanceGetComputeInstances", parts_of_profile);
  symbols.require("nvmlGpuInstanceCreateComputeInstance", create_part);
  symbols.require("nvmlComputeInstanceDestroy", destroy_part);
  symbols.require("nvmlDeviceGetMaxMigDeviceCount", mig_device_count);
  symbols.require("nvmlDeviceGetMigDeviceHandleByIndex", mig_device_by_index);
  symbols.require("nvmlDeviceGetGpuInstanceId", mig_device_instance);
  has_mig_functions_ = symbols.status().ok();
  symbols.find("nvmlDeviceGetComputeRunningProcesses_v3", running_processes);
  symbols.find("nvmlDeviceGetPowerUsage", power_usage);
  symbols.find("nvmlDeviceGetEnforcedPowerLimit", power_limit);
  symbols.find("nvmlDeviceGetTotalEnergyConsumption", energy);
}

Status NvmlCalls::can_divide() const {
  if (has_mig_functions_) return {};
  return {
      StatusCode::unavailable,
      "MIG placements require NVIDIA's driver 470 or later; install a newer driver, or divide the "
      "GPU by mps"};
}

std::string NvmlCalls::message(abi::Return code) const {
  const char* const text = error_string_(code);
  return std::string(text != nullptr ? text : "no message") + ", NVML's " + std::to_string(code);
}

Status NvmlCalls::failure(abi::Return code, const std::string& what) const {
  const std::string full = what + " (" + message(code) + ')';
  for (const KnownError& known : kKnownErrors) {
    if (known.code == code) return {known.status, full + "; " + known.fix};
  }
  return {StatusCode::internal, full};
}

Result<abi::Device> NvmlCalls::device(const std::string& uuid) const {
  abi::Device device = nullptr;
  const abi::Return code = device_by_uuid(uuid.c_str(), &device);
  if (code == abi::kSuccess) return device;
  if (code == abi::kNotFound || code == abi::kInvalidArgument)
    return Status(StatusCode::not_found, "this machine has no GPU " + uuid);
  return failure(code, "cannot access GPU " + uuid);
}

Result<std::string> NvmlCalls::text(abi::DeviceText* function, abi::Device device) const {
  std::array<char, kLongestText> buffer{};
  const abi::Return code = function(device, buffer.data(), static_cast<abi::Count>(buffer.size()));
  if (code != abi::kSuccess) return failure(code, "cannot read its name or UUID");
  return std::string(buffer.data());
}

}  // namespace gpulet::gpu
