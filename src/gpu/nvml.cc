#include "gpulet/gpu/nvml.h"

#include <array>
#include <utility>

#include "gpu/nvml_calls.h"

namespace gpulet::gpu {
namespace {

namespace abi = nvml_abi;

constexpr std::size_t kLongestText = 96;  // what nvml.h calls the length of a version

// What a GPU does not know of itself (not_supported) keeps its default.
Status read(const NvmlCalls& calls, GpuInfo& gpu) {
  abi::Device device = nullptr;
  abi::Return code = calls.device_by_index(gpu.number, &device);
  const std::string silent = "GPU " + std::to_string(gpu.number) + " does not answer";
  if (code != abi::kSuccess) return calls.failure(code, silent);
  Result<std::string> uuid = calls.text(calls.device_uuid, device);
  if (!uuid.ok()) return uuid.status().within("GPU " + std::to_string(gpu.number));
  gpu.uuid = std::move(uuid).value();
  Result<std::string> name = calls.text(calls.device_name, device);
  if (!name.ok()) return name.status().within("GPU " + std::to_string(gpu.number));
  gpu.name = std::move(name).value();

  const auto answered = [&code](abi::Return answer) {
    if (answer != abi::kSuccess && answer != abi::kNotSupported && code == abi::kSuccess)
      code = answer;
    return answer == abi::kSuccess;
  };
  if (abi::Memory memory{}; answered(calls.device_memory(device, &memory)))
    gpu.memory_bytes = memory.total;
  int major = 0;
  int minor = 0;
  if (answered(calls.device_capability(device, &major, &minor))) {
    gpu.compute_major = static_cast<std::uint32_t>(major);
    gpu.compute_minor = static_cast<std::uint32_t>(minor);
  }
  if (int mode = 0; answered(calls.device_compute_mode(device, &mode)))
    gpu.shareable = mode != abi::kComputeModeProhibited && mode != abi::kComputeModeExclusiveThread;
  abi::Count mig = 0;
  abi::Count mig_after_reset = 0;
  if (calls.device_mig_mode != nullptr &&
      answered(calls.device_mig_mode(device, &mig, &mig_after_reset)))
    gpu.mig_enabled = mig == abi::kMigEnabled;
  return code == abi::kSuccess ? Status() : calls.failure(code, silent);
}

GpuInfo describe(const NvmlCalls& calls, std::uint32_t number) {
  GpuInfo gpu;
  gpu.number = number;
  gpu.fault = read(calls, gpu).message();
  return gpu;
}

}  // namespace

Nvml::Nvml(std::shared_ptr<const NvmlCalls> calls) : calls_(std::move(calls)) {}
Nvml::Nvml(Nvml&&) noexcept = default;
Nvml& Nvml::operator=(Nvml&&) noexcept = default;
Nvml::~Nvml() = default;

Result<Nvml> Nvml::load(const std::filesystem::path& library) {
  Result<std::shared_ptr<const NvmlCalls>> calls = NvmlCalls::load(library);
  if (!calls.ok()) return calls.status();
  return Nvml(std::move(calls).value());
}

Result<std::string> Nvml::driver_version() const {
  std::array<char, kLongestText> buffer{};
  const abi::Return code =
      calls_->driver_version(buffer.data(), static_cast<abi::Count>(buffer.size()));
  if (code != abi::kSuccess) return calls_->failure(code, "the driver does not tell its version");
  return std::string(buffer.data());
}

Result<std::vector<GpuInfo>> Nvml::gpus() const {
  abi::Count count = 0;
  if (const abi::Return code = calls_->device_count(&count); code != abi::kSuccess)
    return calls_->failure(code, "the driver does not tell which GPUs there are");
  std::vector<GpuInfo> gpus;
  gpus.reserve(count);
  for (abi::Count number = 0; number < count; ++number) gpus.push_back(describe(*calls_, number));
  return gpus;
}

Result<GpuMemory> Nvml::memory(const std::string& uuid) const {
  const Result<abi::Device> device = calls_->device(uuid);
  if (!device.ok()) return device.status();
  abi::Memory memory{};
  if (const abi::Return code = calls_->device_memory(device.value(), &memory);
      code != abi::kSuccess)
    return calls_->failure(code, "GPU " + uuid + " does not tell its memory");
  return GpuMemory{memory.total, memory.free};
}

Result<GpuClocks> Nvml::clocks(const std::string& uuid) const {
  const Result<abi::Device> device = calls_->device(uuid);
  if (!device.ok()) return device.status();
  GpuClocks clocks;
  for (const auto& [clock, mhz] : {std::pair{abi::kClockSm, &clocks.sm_mhz},
                                   std::pair{abi::kClockMemory, &clocks.memory_mhz}}) {
    if (const abi::Return code = calls_->device_clock(device.value(), clock, mhz);
        code != abi::kSuccess)
      return calls_->failure(code, "GPU " + uuid + " does not tell its clocks");
  }
  return clocks;
}

GpuPower Nvml::power(const std::string& uuid) const {
  constexpr double kOfAThousand = 1e-3;
  GpuPower power;
  const Result<abi::Device> device = calls_->device(uuid);
  if (!device.ok()) return power;
  const auto read = [&device](auto* function, auto value) {
    std::optional<double> told;
    if (function != nullptr && function(device.value(), &value) == abi::kSuccess)
      told = static_cast<double>(value) * kOfAThousand;
    return told;
  };
  power.usage_w = read(calls_->power_usage, 0U);
  power.limit_w = read(calls_->power_limit, 0U);
  power.energy_j = read(calls_->energy, 0ULL);
  return power;
}

}  // namespace gpulet::gpu
