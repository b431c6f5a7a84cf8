#include "tools/measure/machine.h"

#include <sys/utsname.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "gpulet/partition/drivers/drivers.h"

namespace gpulet::tools {
namespace {

MachineGpu describe_gpu(gpu::GpuInfo info, const Result<gpu::CudaDriver>& cuda) {
  MachineGpu found{std::move(info), std::nullopt, Status(StatusCode::unavailable, "")};
  if (!found.info.fault.empty()) {
    found.green = Status(StatusCode::unavailable, found.info.fault);
    return found;
  }
  if (found.info.mig_enabled) {
    found.green = Status(StatusCode::unavailable, "MIG is on, so CUDA sees only its instances");
    const auto device = gpu::MigDevice::open(found.info.uuid);
    auto instances = device.ok() ? device.value().instances() : device.status();
    if (instances.ok()) found.instances = std::move(instances).value();
    return found;
  }
  if (!cuda.ok()) {
    found.green = cuda.status();
    return found;
  }
  const Result<std::uint32_t> number = cuda.value().number_of(found.info.uuid);
  if (!number.ok()) {
    found.green = number.status();
    return found;
  }
  const Result<std::uint32_t> sms = cuda.value().usable_sms(number.value());
  if (sms.ok()) found.sms = sms.value();
  found.green = cuda.value().sm_groups(number.value());
  return found;
}

void find_gpus(MachineDevices& machine) {
  const Result<gpu::Nvml> nvml = gpu::Nvml::load();
  if (!nvml.ok()) {
    machine.no_gpus = nvml.status().message();
    return;
  }
  const Result<std::string> version = nvml.value().driver_version();
  if (version.ok()) machine.driver_version = version.value();
  Result<std::vector<gpu::GpuInfo>> gpus = nvml.value().gpus();
  if (!gpus.ok() || gpus.value().empty()) {
    machine.no_gpus =
        gpus.ok() ? "NVIDIA's driver is installed but finds no GPU" : gpus.status().message();
    return;
  }
  const Result<gpu::CudaDriver> cuda = gpu::CudaDriver::load();
  if (cuda.ok()) {
    const Result<std::uint32_t> version_of_cuda = cuda.value().version();
    if (version_of_cuda.ok()) machine.cuda_version = version_of_cuda.value();
  }
  for (gpu::GpuInfo& info : gpus.value())
    machine.gpus.push_back(describe_gpu(std::move(info), cuda));
}

// A field of /proc/meminfo; 0: unknown.
double memory_field_mb(const std::string& wanted) {
  constexpr double kKilobytesPerMegabyte = 1024;
  std::ifstream stream("/proc/meminfo");
  for (std::string line; std::getline(stream, line);) {
    std::istringstream fields(line);
    std::string name;
    double kilobytes = 0;
    if (fields >> name >> kilobytes && name == wanted) return kilobytes / kKilobytesPerMegabyte;
  }
  return 0;
}

}  // namespace

MachineDevices find_machine_devices() {
  MachineDevices machine{partition::usable_cores(),    "", {}, "", std::nullopt,
                         partition::find_mps_control()};
  find_gpus(machine);
  return machine;
}

double machine_memory_mb() { return memory_field_mb("MemTotal:"); }

double available_memory_mb() { return memory_field_mb("MemAvailable:"); }

std::string cpu_model() {
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname system{};
  return ::uname(&system) == 0 ? system.machine : "unknown";
}

}  // namespace gpulet::tools
