#include "tools/measure/measured_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <string_view>
#include <utility>

#include "gpulet/backend/gpu_devices.h"
#include "gpulet/base/bytes.h"
#include "gpulet/base/text.h"
#include "gpulet/gpu/cuda_driver.h"
#include "gpulet/gpu/nvml.h"
#include "gpulet/profile/store.h"
#include "tools/measure/machine.h"
#include "tools/report/format.h"

namespace gpulet::tools {

namespace {

constexpr std::string_view kCpu = "cpu:";
constexpr std::string_view kCuda = "cuda:";
constexpr std::string_view kSimulated = "simulated:";
// Several of the 10 ms slices in which a share of a core is granted.
constexpr Duration kCpuBlock = std::chrono::milliseconds(50);
// The SMs of a GPU's share are always available; blocks average out the jitter of short batches.
constexpr Duration kGpuBlock = std::chrono::milliseconds(5);
constexpr double kSteadyOnCpu = 0.1;  // other processes of the machine add noise
constexpr double kSteadyOnGpu = 0.03;
// The clients that every version of MPS accepts on one GPU. Also far beyond what a CPU device
// needs.
constexpr std::size_t kMostProcesses = 48;
// More green streams than blocks would overlap, and with them the two that are measured.
constexpr std::size_t kMostGreenStreams = 2;

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

constexpr const char* kCpuType = "cpu-core";

Result<MeasuredDevice> open_cpu(const DeviceName& device, partition::CpuPriority priority) {
  GPULET_TRY(auto driver, partition::make_cpu_quota_driver(
                              device.cores, partition::CpuMechanism::automatic, {}, priority));
  MeasuredDevice opened;
  opened.name = kCpuType;
  opened.cores = device.cores;
  opened.averaging_block = kCpuBlock;
  opened.steady_spread = kSteadyOnCpu;
  opened.most_gpulets = kMostProcesses;
  opened.driver = std::move(driver);
  opened.facts = {{"device", std::string(kCpu) + number_list(device.cores, ",")},
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

Result<MeasuredDevice> find_gpu(const DeviceName& device) {
  GPULET_TRY(const auto nvml, gpu::Nvml::load());
  GPULET_TRY(const auto gpus, nvml.gpus());
  GPULET_TRY(const auto info, gpu::choose_gpu(gpus, device.gpu));
  MeasuredDevice found;
  found.name = profile_name(info.name);
  found.gpu = info.uuid;
  found.averaging_block = kGpuBlock;
  found.steady_spread = kSteadyOnGpu;
  found.facts = {{"device", info.uuid}, {"machine", info.name}};
  add_versions(nvml, info, found.facts);
  return found;
}

Result<MeasuredDevice> open_gpu(const DeviceName& device, const std::string& partitioning) {
  const bool green = partitioning == "green";
  if (partitioning != "mps" && !green) {
    return Status(StatusCode::invalid,
                  fmt::format(R"(--partitioning "{}": write mps or green, as for the backend)",
                              partitioning));
  }
  auto found = find_gpu(device);
  if (!found.ok()) return found;
  MeasuredDevice& opened = found.value();
  GPULET_TRY(auto folder, ScratchFolder::make("gpulet-"));
  opened.folder = std::make_unique<ScratchFolder>(std::move(folder));
  backend::GpuEnvironment places;
  places.mps.directory = opened.folder->path();
  config::DeviceConfig described;
  described.partitioning = partitioning;
  described.gpu = opened.gpu;
  backend::GpuDevices devices(places);
  GPULET_TRY(auto made, devices.make(described, 0));
  opened.driver = std::move(made).driver;
  opened.shared_process = green;
  opened.most_gpulets = green ? kMostGreenStreams : kMostProcesses;
  opened.facts["partitioning"] = opened.driver->mechanism();
  return found;
}

Result<MeasuredDevice> open_simulated(const DeviceName& device) {
  GPULET_TRY(auto times, SimulatedTimes::read(device.simulated));
  MeasuredDevice opened;
  opened.simulated = std::move(times);
  opened.name = opened.simulated->profile().name;
  opened.averaging_block = kGpuBlock;
  opened.steady_spread = kSteadyOnCpu;
  opened.most_gpulets = kMostProcesses;
  opened.driver = partition::make_simulated_driver();
  opened.facts = {{"device", std::string(kSimulated) + opened.name},
                  {"machine", "simulation of " + opened.name},
                  {"partitioning", opened.driver->mechanism()}};
  return opened;
}

std::optional<double> free_gpu_memory_mb(const std::string& gpu) {
  const auto nvml = gpu::Nvml::load();
  if (!nvml.ok()) return std::nullopt;
  const auto memory = nvml.value().memory(gpu);
  if (!memory.ok()) return std::nullopt;
  return static_cast<double>(memory.value().free_bytes) / static_cast<double>(kBytesPerMegabyte);
}

}  // namespace

Result<std::shared_ptr<const SimulatedTimes>> SimulatedTimes::read(
    const std::filesystem::path& profile) {
  GPULET_TRY(auto read, profile::read_profile(profile));
  return std::shared_ptr<const SimulatedTimes>(std::make_shared<SimulatedTimes>(std::move(read)));
}

SimulatedTimes::SimulatedTimes(profile::Profile profile) : profile_(std::move(profile)) {
  auto model = profile::InterferenceModel::create(profile_, profile::InterferenceKind::combined);
  if (model.ok()) interference_ = std::move(model).value();
}

Result<Duration> SimulatedTimes::alone(const profile::CoRunner& batch) const {
  const profile::ModelProfile* const model = profile_.find(batch.model);
  const auto ms =
      model == nullptr ? std::nullopt : model->latency.latency_ms(batch.batch, batch.share);
  if (ms) return from_ms(*ms);
  return Status(StatusCode::not_found,
                fmt::format("the simulated device has no latency of {} x{} at {} %; choose models, "
                            "batches and sizes of its profile",
                            batch.model, batch.batch, batch.share.percent));
}

Result<Duration> SimulatedTimes::beside(const profile::CoRunner& batch,
                                        const profile::CoRunner& other) const {
  const auto solo = alone(batch);
  if (!solo.ok() || !interference_) return solo;
  const double slowdown =
      interference_->slowdown(interference_->traits(batch.model, batch.batch, batch.share),
                              interference_->traits(other.model, other.batch, other.share));
  return std::chrono::duration_cast<Duration>(slowdown * solo.value());
}

std::optional<double> free_memory_mb(const MeasuredDevice& device) {
  if (device.simulated != nullptr) return std::nullopt;
  if (!device.gpu.empty()) return free_gpu_memory_mb(device.gpu);
  const double mb = available_memory_mb();
  return mb > 0 ? std::optional(mb) : std::nullopt;
}

Result<DeviceName> parse_measured_device(const std::string& text) {
  if (!text.starts_with(kSimulated)) return parse_device(text);
  std::filesystem::path profile = text.substr(kSimulated.size());
  if (!profile.has_filename()) profile = profile.parent_path();
  if (profile.empty())
    return Status(StatusCode::invalid,
                  "--device \"" + text + "\": name the folder of a profile after simulated:");
  return DeviceName{{}, "", std::move(profile)};
}

Result<DeviceName> parse_device(const std::string& text) {
  const Status wrong(StatusCode::invalid,
                     "--device \"" + text +
                         "\": write the cores of one CPU device, such as cpu:0 or cpu:0,1, or the "
                         "number or UUID of a GPU, such as cuda:0");
  if (text.starts_with(kCuda)) {
    const std::string gpu = text.substr(kCuda.size());
    if (gpu.empty()) return wrong;
    return DeviceName{{}, gpu};
  }
  if (!text.starts_with(kCpu)) return wrong;
  std::vector<std::uint32_t> cores;
  for (std::size_t begin = kCpu.size(); begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto core = parse_number<std::uint32_t>(text.substr(begin, end - begin));
    if (!core || std::find(cores.begin(), cores.end(), *core) != cores.end()) return wrong;
    cores.push_back(*core);
    begin = end + 1;
  }
  return DeviceName{cores, ""};
}

Result<std::string> type_of(const DeviceName& device) {
  if (!device.is_gpu()) return std::string(kCpuType);
  GPULET_TRY(const auto nvml, gpu::Nvml::load());
  GPULET_TRY(const auto gpus, nvml.gpus());
  GPULET_TRY(const auto info, gpu::choose_gpu(gpus, device.gpu));
  return profile_name(info.name);
}

Result<MeasuredDevice> find_device(const DeviceName& device) {
  return device.is_gpu() ? find_gpu(device) : open_device(device, "");
}

Result<MeasuredDevice> open_device(const DeviceName& device, const std::string& partitioning,
                                   partition::CpuPriority priority) {
  if (!device.simulated.empty()) return open_simulated(device);
  return device.is_gpu() ? open_gpu(device, partitioning) : open_cpu(device, priority);
}

}  // namespace gpulet::tools
