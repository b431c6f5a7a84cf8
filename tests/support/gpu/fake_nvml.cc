// A libnvidia-ml.so.1 that is configured by a text file (fake_control.h).
#include <unistd.h>

#include "tests/support/gpu/fake_nvml_devices.h"

namespace {

namespace abi = gpulet::gpu::nvml_abi;
using gpulet::support::copy_text;
using gpulet::support::FakeMachine;
using gpulet::support::FakeSettings;
using gpulet::support::handle_of;
using gpulet::support::of_device;
using gpulet::support::read_fake_machine;
using gpulet::support::record_fake_call;

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the library's names
extern "C" {

abi::Return nvmlInit_v2() {
  record_fake_call("nvmlInit_v2");
  return static_cast<abi::Return>(read_fake_machine().settings.number("nvml_init", 0));
}
abi::Return nvmlShutdown() {
  record_fake_call("nvmlShutdown");
  return abi::kSuccess;
}
const char* nvmlErrorString(abi::Return code) {
  switch (code) {
    case abi::kDriverNotLoaded:
      return "Driver Not Loaded";
    case abi::kGpuIsLost:
      return "GPU is lost";
    case abi::kNoPermission:
      return "Insufficient Permissions";
    case abi::kInUse:
      return "In use by another client";
    case abi::kInsufficientResources:
      return "Insufficient Resources";
    case abi::kVersionMismatch:
      return "Driver/library version mismatch";
    default:
      return "Unknown Error";
  }
}
abi::Return nvmlSystemGetDriverVersion(char* buffer, abi::Count size) {
  return copy_text(read_fake_machine().settings.text("driver_version", "580.95.05"), buffer, size);
}
abi::Return nvmlDeviceGetCount_v2(abi::Count* count) {
  *count = static_cast<abi::Count>(read_fake_machine().gpus.size());
  return abi::kSuccess;
}
abi::Return nvmlDeviceGetHandleByIndex_v2(abi::Count number, abi::Device* device) {
  *device = handle_of(number);
  return of_device(*device, [](const FakeSettings&) { return abi::kSuccess; });
}
abi::Return nvmlDeviceGetHandleByUUID(const char* uuid, abi::Device* device) {
  const FakeMachine machine = read_fake_machine();
  for (std::size_t number = 0; number < machine.gpus.size(); ++number) {
    if (machine.gpus[number].text("uuid", "") != uuid) continue;
    *device = handle_of(number);
    return of_device(*device, [](const FakeSettings&) { return abi::kSuccess; });
  }
  return abi::kNotFound;
}
abi::Return nvmlDeviceGetUUID(abi::Device device, char* buffer, abi::Count size) {
  if (gpulet::support::is_mig_device(device))
    return gpulet::support::copy_mig_uuid(device, buffer, size);
  return of_device(device, [&](const FakeSettings& gpu) {
    return copy_text(gpu.text("uuid", ""), buffer, size);
  });
}
abi::Return nvmlDeviceGetName(abi::Device device, char* buffer, abi::Count size) {
  return of_device(device, [&](const FakeSettings& gpu) {
    return copy_text(gpu.text("name", "NVIDIA H200"), buffer, size);
  });
}
abi::Return nvmlDeviceGetMemoryInfo(abi::Device device, abi::Memory* memory) {
  while (read_fake_machine().settings.number("nvml_hang", 0) != 0) ::usleep(1000);
  return of_device(device, [&](const FakeSettings& gpu) {
    const auto total = static_cast<unsigned long long>(gpu.number("memory_mib", 143771)) << 20U;
    const auto used = static_cast<unsigned long long>(gpu.number("used_mib", 0)) << 20U;
    *memory = {total, total - used, used};
    return abi::kSuccess;
  });
}
abi::Return nvmlDeviceGetCudaComputeCapability(abi::Device device, int* major, int* minor) {
  return of_device(device, [&](const FakeSettings& gpu) {
    *major = static_cast<int>(gpu.number("compute_major", 9));
    *minor = static_cast<int>(gpu.number("compute_minor", 0));
    return abi::kSuccess;
  });
}
abi::Return nvmlDeviceGetComputeMode(abi::Device device, int* mode) {
  return of_device(device, [&](const FakeSettings& gpu) {
    *mode = static_cast<int>(gpu.number("compute_mode", 0));
    return abi::kSuccess;
  });
}
abi::Return nvmlDeviceGetClockInfo(abi::Device device, int clock, unsigned* mhz) {
  return of_device(device, [&](const FakeSettings& gpu) {
    *mhz = static_cast<unsigned>(clock == abi::kClockSm ? gpu.number("sm_mhz", 1980)
                                                        : gpu.number("memory_mhz", 3201));
    return abi::kSuccess;
  });
}

// Not supported without a setting.
abi::Return nvmlDeviceGetPowerUsage(abi::Device device, unsigned* milliwatts) {
  return of_device(device, [&](const FakeSettings& gpu) {
    *milliwatts = static_cast<unsigned>(gpu.number("power_mw", 0));
    return *milliwatts == 0 ? abi::kNotSupported : abi::kSuccess;
  });
}
abi::Return nvmlDeviceGetEnforcedPowerLimit(abi::Device device, unsigned* milliwatts) {
  return of_device(device, [&](const FakeSettings& gpu) {
    *milliwatts = static_cast<unsigned>(gpu.number("power_limit_mw", 0));
    return *milliwatts == 0 ? abi::kNotSupported : abi::kSuccess;
  });
}
abi::Return nvmlDeviceGetTotalEnergyConsumption(abi::Device device,
                                                unsigned long long* millijoules) {
  return of_device(device, [&](const FakeSettings& gpu) {
    *millijoules = static_cast<unsigned long long>(gpu.number("energy_mj", 0));
    return *millijoules == 0 ? abi::kNotSupported : abi::kSuccess;
  });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
