#include "gpulet/gpu/nvml.h"

#include <array>
#include <utility>

#include "gpu/nvml_abi.h"
#include "gpu/shared_library.h"

namespace gpulet::gpu {
namespace {

namespace abi = nvml_abi;

constexpr std::size_t kLongestText = 96;  // what nvml.h calls the length of a name and of a UUID

// What to do about it, of failures that are no bug.
struct Known {
  abi::Return code;
  StatusCode status;
  const char* mend;
};
constexpr Known kKnown[] = {
    {abi::kDriverNotLoaded, StatusCode::unavailable,
     "load its kernel module (modprobe nvidia), or give the container its GPUs"},
    {abi::kVersionMismatch, StatusCode::unavailable,
     "load the kernel module of the installed driver, or restart the machine"},
    {abi::kLibraryNotFound, StatusCode::unavailable, "install NVIDIA's driver as a whole"},
    {abi::kNoPermission, StatusCode::unavailable, "let this user open /dev/nvidia*"},
    {abi::kGpuIsLost, StatusCode::unavailable,
     "look for Xid in the kernel's log, and restart the machine"},
    {abi::kResetRequired, StatusCode::unavailable, "reset the GPU, or restart the machine"},
    {abi::kUninitialized, StatusCode::unavailable, "load the driver again"},
};

}  // namespace

// The library's functions between nvmlInit and nvmlShutdown.
class Nvml::Calls {
 public:
  explicit Calls(SharedLibrary opened) : library(std::move(opened)) {}
  ~Calls() {
    if (initialised) (void)shutdown();
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  [[nodiscard]] Status find_functions();
  [[nodiscard]] Status initialise();

  // The failure of what "<what>" names.
  [[nodiscard]] Status failure(abi::Return code, const std::string& what) const;
  [[nodiscard]] Result<abi::Device> device(const std::string& uuid) const;
  [[nodiscard]] Result<std::string> text(abi::DeviceText* function, abi::Device device) const;
  [[nodiscard]] GpuInfo describe(std::uint32_t number) const;

  SharedLibrary library;
  bool initialised = false;
  abi::Init* init = nullptr;
  abi::Shutdown* shutdown = nullptr;
  abi::ErrorString* error_string = nullptr;
  abi::DriverVersion* driver_version = nullptr;
  abi::DeviceCount* device_count = nullptr;
  abi::DeviceByIndex* device_by_index = nullptr;
  abi::DeviceByUuid* device_by_uuid = nullptr;
  abi::DeviceText* device_uuid = nullptr;
  abi::DeviceText* device_name = nullptr;
  abi::DeviceMemory* device_memory = nullptr;
  abi::DeviceCapability* device_capability = nullptr;
  abi::DeviceMigMode* device_mig_mode = nullptr;  // nullptr: older than MIG
  abi::DeviceComputeMode* device_compute_mode = nullptr;
  abi::DeviceClock* device_clock = nullptr;

 private:
  [[nodiscard]] Status read(GpuInfo& gpu) const;
};

Status Nvml::Calls::find_functions() {
  Symbols symbols(library);
  symbols.require("nvmlInit_v2", init);
  symbols.require("nvmlShutdown", shutdown);
  symbols.require("nvmlErrorString", error_string);
  symbols.require("nvmlSystemGetDriverVersion", driver_version);
  symbols.require("nvmlDeviceGetCount_v2", device_count);
  symbols.require("nvmlDeviceGetHandleByIndex_v2", device_by_index);
  symbols.require("nvmlDeviceGetHandleByUUID", device_by_uuid);
  symbols.require("nvmlDeviceGetUUID", device_uuid);
  symbols.require("nvmlDeviceGetName", device_name);
  symbols.require("nvmlDeviceGetMemoryInfo", device_memory);
  symbols.require("nvmlDeviceGetCudaComputeCapability", device_capability);
  symbols.find("nvmlDeviceGetMigMode", device_mig_mode);
  symbols.require("nvmlDeviceGetComputeMode", device_compute_mode);
  symbols.require("nvmlDeviceGetClockInfo", device_clock);
  return symbols.status();
}

Status Nvml::Calls::initialise() {
  if (const abi::Return code = init(); code != abi::kSuccess)
    return failure(code, "NVIDIA's driver does not answer");
  initialised = true;
  return {};
}

Status Nvml::Calls::failure(abi::Return code, const std::string& what) const {
  const char* const words = error_string(code);
  std::string message = what + " (" + (words != nullptr ? words : "no words for it") + ", NVML's " +
                        std::to_string(code) + ')';
  for (const Known& known : kKnown) {
    if (known.code == code) return {known.status, message + "; " + known.mend};
  }
  return {StatusCode::internal, message};
}

Result<abi::Device> Nvml::Calls::device(const std::string& uuid) const {
  abi::Device device = nullptr;
  const abi::Return code = device_by_uuid(uuid.c_str(), &device);
  if (code == abi::kSuccess) return device;
  if (code == abi::kNotFound || code == abi::kInvalidArgument)
    return Status(StatusCode::not_found, "this machine has no GPU " + uuid);
  return failure(code, "GPU " + uuid + " does not answer");
}

Result<std::string> Nvml::Calls::text(abi::DeviceText* function, abi::Device device) const {
  std::array<char, kLongestText> buffer{};
  const abi::Return code = function(device, buffer.data(), static_cast<abi::Count>(buffer.size()));
  if (code != abi::kSuccess) return failure(code, "it does not tell its name");
  return std::string(buffer.data());
}

// What a GPU does not know of itself (not_supported) keeps its default.
Status Nvml::Calls::read(GpuInfo& gpu) const {
  abi::Device device = nullptr;
  abi::Return code = device_by_index(gpu.number, &device);
  const std::string silent = "GPU " + std::to_string(gpu.number) + " does not answer";
  if (code != abi::kSuccess) return failure(code, silent);
  Result<std::string> uuid = text(device_uuid, device);
  if (!uuid.ok()) return uuid.status().within("GPU " + std::to_string(gpu.number));
  gpu.uuid = std::move(uuid).value();
  Result<std::string> name = text(device_name, device);
  if (!name.ok()) return name.status().within("GPU " + std::to_string(gpu.number));
  gpu.name = std::move(name).value();

  const auto answered = [&code](abi::Return answer) {
    if (answer != abi::kSuccess && answer != abi::kNotSupported && code == abi::kSuccess)
      code = answer;
    return answer == abi::kSuccess;
  };
  if (abi::Memory memory{}; answered(device_memory(device, &memory)))
    gpu.memory_bytes = memory.total;
  int major = 0;
  int minor = 0;
  if (answered(device_capability(device, &major, &minor))) {
    gpu.compute_major = static_cast<std::uint32_t>(major);
    gpu.compute_minor = static_cast<std::uint32_t>(minor);
  }
  if (int mode = 0; answered(device_compute_mode(device, &mode)))
    gpu.shareable = mode != abi::kComputeModeProhibited && mode != abi::kComputeModeExclusiveThread;
  abi::Count mig = 0;
  abi::Count mig_after_reset = 0;
  if (device_mig_mode != nullptr && answered(device_mig_mode(device, &mig, &mig_after_reset)))
    gpu.mig_enabled = mig == abi::kMigEnabled;
  return code == abi::kSuccess ? Status() : failure(code, silent);
}

GpuInfo Nvml::Calls::describe(std::uint32_t number) const {
  GpuInfo gpu;
  gpu.number = number;
  gpu.fault = read(gpu).message();
  return gpu;
}

Nvml::Nvml(std::unique_ptr<Calls> calls) : calls_(std::move(calls)) {}
Nvml::Nvml(Nvml&&) noexcept = default;
Nvml& Nvml::operator=(Nvml&&) noexcept = default;
Nvml::~Nvml() = default;

Result<Nvml> Nvml::load(const std::filesystem::path& library) {
  Result<SharedLibrary> opened = SharedLibrary::open(library);
  if (!opened.ok()) {
    return Status(StatusCode::unavailable,
                  "NVIDIA's management library is not here (" + opened.status().message() +
                      "); install NVIDIA's driver, or give the container its GPUs");
  }
  auto calls = std::make_unique<Calls>(std::move(opened).value());
  if (Status found = calls->find_functions(); !found.ok()) return found;
  if (Status started = calls->initialise(); !started.ok()) return started;
  return Nvml(std::move(calls));
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
  for (abi::Count number = 0; number < count; ++number) gpus.push_back(calls_->describe(number));
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

}  // namespace gpulet::gpu
