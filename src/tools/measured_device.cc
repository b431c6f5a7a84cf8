#include "tools/measured_device.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "gpulet/backend/gpu_devices.h"
#include "gpulet/gpu/cuda_driver.h"
#include "gpulet/gpu/nvml.h"
#include "gpulet/partition/drivers/cpu_quota.h"

namespace gpulet::tools {
namespace {

constexpr std::string_view kCpu = "cpu:";
constexpr std::string_view kCuda = "cuda:";
// A share of a core comes in slices of 10 ms: several of them.
constexpr Duration kEvenOnCpu = std::chrono::milliseconds(50);
// A share of a GPU is SMs, which are there all the time; single short batches are jittery.
constexpr Duration kEvenOnGpu = std::chrono::milliseconds(5);
constexpr double kSteadyOnCpu = 0.1;  // whatever else runs on the machine shows in it
constexpr double kSteadyOnGpu = 0.03;

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line)) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname system{};
  return ::uname(&system) == 0 ? system.machine : "unknown";
}

std::string joined(const std::vector<std::uint32_t>& cores) {
  std::string text;
  for (const std::uint32_t core : cores) text += (text.empty() ? "" : ",") + std::to_string(core);
  return text;
}

// "NVIDIA H200" to "h200", "NVIDIA A100-SXM4-40GB" to "a100-sxm4-40gb".
std::string profile_name(std::string_view gpu) {
  constexpr std::string_view kMaker = "NVIDIA ";
  if (gpu.starts_with(kMaker)) gpu.remove_prefix(kMaker.size());
  std::string name;
  for (const char letter : gpu) {
    const auto byte = static_cast<unsigned char>(letter);
    name += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '-';
  }
  return name.empty() ? "gpu" : name;
}

Result<MeasuredDevice> open_cpu(const DeviceName& device) {
  auto driver = partition::make_cpu_quota_driver(device.cores);
  if (!driver.ok()) return driver.status();
  MeasuredDevice opened;
  opened.name = "cpu-core";
  opened.cores = device.cores;
  opened.even_over = kEvenOnCpu;
  opened.steady = kSteadyOnCpu;
  opened.driver = std::move(driver).value();
  opened.facts = {{"device", std::string(kCpu) + joined(device.cores)},
                  {"machine", cpu_model()},
                  {"partitioning", opened.driver->mechanism()}};
  return opened;
}

void add_versions(const gpu::Nvml& nvml, const gpu::GpuInfo& info, profile::Provenance& facts) {
  if (const auto version = nvml.driver_version(); version.ok()) facts["driver"] = version.value();
  const auto cuda = gpu::CudaDriver::load();
  if (!cuda.ok()) return;
  const auto version = cuda.value().version();
  if (version.ok()) facts["cuda"] = gpu::cuda_version_text(version.value());
  const auto number = cuda.value().number_of(info.uuid);
  if (!number.ok()) return;
  const auto sms = cuda.value().usable_sms(number.value());
  if (sms.ok()) facts["sms"] = std::to_string(sms.value());
}

Result<MeasuredDevice> open_gpu(const DeviceName& device, const std::string& partitioning) {
  const bool green = partitioning == "green";
  if (partitioning != "mps" && !green) {
    return Status(StatusCode::invalid, "--partitioning \"" + partitioning +
                                           "\": a GPU is measured as it will serve; write mps or "
                                           "green");
  }
  const auto nvml = gpu::Nvml::load();
  if (!nvml.ok()) return nvml.status();
  const auto gpus = nvml.value().gpus();
  if (!gpus.ok()) return gpus.status();
  const auto info = gpu::choose_gpu(gpus.value(), device.gpu);
  if (!info.ok()) return info.status();

  auto folder = OwnFolder::make("gpulet-");
  if (!folder.ok()) return folder.status();
  MeasuredDevice opened;
  opened.folder = std::make_unique<OwnFolder>(std::move(folder).value());
  backend::GpuPlaces places;
  places.mps.directory = opened.folder->path();
  config::DeviceConfig described;
  described.partitioning = partitioning;
  described.gpu = info.value().uuid;
  backend::GpuDevices devices(places);
  auto made = green ? devices.make_green(described, 0) : devices.make_mps(described, 0);
  if (!made.ok()) return made.status();
  opened.driver = std::move(made).value().driver;
  opened.name = profile_name(info.value().name);
  opened.gpu = info.value().uuid;
  opened.lanes = green;
  opened.even_over = kEvenOnGpu;
  opened.steady = kSteadyOnGpu;
  opened.facts = {{"device", info.value().uuid},
                  {"machine", info.value().name},
                  {"partitioning", opened.driver->mechanism()}};
  add_versions(nvml.value(), info.value(), opened.facts);
  return opened;
}

}  // namespace

Result<DeviceName> parse_device(const std::string& text) {
  const Status wrong(StatusCode::invalid,
                     "--device \"" + text +
                         "\": write the cores of one CPU device, for example cpu:0 or cpu:0,1, or "
                         "a GPU by its number or its UUID, for example cuda:0");
  if (text.starts_with(kCuda)) {
    const std::string gpu = text.substr(kCuda.size());
    if (gpu.empty()) return wrong;
    return DeviceName{{}, gpu};
  }
  if (!text.starts_with(kCpu)) return wrong;
  std::vector<std::uint32_t> cores;
  const char* at = text.data() + kCpu.size();
  const char* const end = text.data() + text.size();
  while (true) {
    std::uint32_t core = 0;
    const auto read = std::from_chars(at, end, core);
    if (read.ec != std::errc()) return wrong;
    if (std::find(cores.begin(), cores.end(), core) != cores.end()) return wrong;
    cores.push_back(core);
    if (read.ptr == end) return DeviceName{cores, ""};
    if (*read.ptr != ',') return wrong;
    at = read.ptr + 1;
  }
}

Result<MeasuredDevice> open_device(const DeviceName& device, const std::string& partitioning) {
  return device.is_gpu() ? open_gpu(device, partitioning) : open_cpu(device);
}

}  // namespace gpulet::tools
