#include "gpulet/backend/gpu_devices.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "gpulet/base/bytes.h"
#include "gpulet/partition/drivers/drivers.h"

namespace gpulet::backend {
namespace {

// MPS allows 48 clients per GPU, and 60 since the driver of CUDA 13.1.
constexpr std::uint32_t kMaxClients = 48;
constexpr std::uint32_t kMaxClientsOfNewDriver = 60;
constexpr unsigned kNewDriver = 590;

std::uint32_t max_clients_of(const std::string& driver_version) {
  unsigned major = 0;
  std::from_chars(driver_version.data(), driver_version.data() + driver_version.size(), major);
  return major >= kNewDriver ? kMaxClientsOfNewDriver : kMaxClients;
}

// The directory for MPS's sockets. Other users must not be able to write to it, as they could
// replace the sockets.
Result<std::filesystem::path> make_mps_directory() {
  const auto user = ::geteuid();
  const char* const runtime = ::getenv("XDG_RUNTIME_DIR");  // NOLINT(concurrency-mt-unsafe)
  std::error_code ignored;
  std::filesystem::path directory = "/run/gpulet-mps";
  if (user != 0) {
    directory = runtime != nullptr && *runtime != 0
                    ? std::filesystem::path(runtime) / "gpulet-mps"
                    : std::filesystem::temp_directory_path(ignored) /
                          ("gpulet-mps-" + std::to_string(user));
  }
  // Clients of a root backend run as another user, who must be able to reach the sockets.
  const mode_t mode = user == 0 ? 0711 : 0700;
  struct stat found {};
  if (::mkdir(directory.c_str(), mode) != 0 && errno != EEXIST) {
    return Status(StatusCode::unavailable, "cannot create the directory " + directory.string() +
                                               " for MPS: " + ::strerror(errno));
  }
  const bool is_mine = ::lstat(directory.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
                       found.st_uid == user && (found.st_mode & 0022U) == 0;
  if (!is_mine) {
    return Status(StatusCode::unavailable, "the directory " + directory.string() +
                                               " for MPS does not belong to user " +
                                               std::to_string(user) + " alone; remove it");
  }
  return directory;
}

}  // namespace

Result<GpuDevices::Machine> GpuDevices::query(const GpuEnvironment& environment) {
  const auto library = gpu::Nvml::load(environment.nvml);
  if (!library.ok()) return library.status();
  auto gpus = library.value().gpus();
  if (!gpus.ok()) return gpus.status();
  const auto version = library.value().driver_version();
  Machine machine{std::move(gpus).value(), {}, version.ok() ? version.value() : std::string()};
  std::vector<std::string> uuids;
  for (const auto& gpu : machine.gpus) uuids.push_back(gpu.uuid);
  if (!uuids.empty()) machine.cuda = gpu::query_cuda({.uuids = uuids, .library = environment.cuda});
  return machine;
}

Result<GpuDevices::Found> GpuDevices::find(const config::DeviceConfig& described,
                                           std::uint32_t number) {
  if (!machine_) machine_.emplace(query(environment_));
  if (!machine_->ok()) return machine_->status();
  const auto& machine = machine_->value();
  const auto gpu =
      gpu::choose_gpu(machine.gpus, described.gpu.empty() ? std::to_string(number) : described.gpu);
  if (!gpu.ok()) return gpu.status();
  const auto& name = gpu.value().uuid;
  if (gpu.value().mig_enabled && described.partitioning != "mig") {
    return Status(StatusCode::unavailable, name + " is in MIG mode, which excludes \"" +
                                               described.partitioning +
                                               "\"; use another GPU, or divide this one by mig");
  }
  if (!gpu.value().shareable) {
    return Status(StatusCode::unavailable,
                  name +
                      " accepts no processes: its compute mode is \"prohibited\"; change it with "
                      "nvidia-smi -c");
  }
  if (used_.contains(name)) {
    return Status(StatusCode::invalid, name +
                                           " already belongs to another device of this file; "
                                           "list each GPU once");
  }
  const auto memory = described.memory_mb > 0
                          ? static_cast<std::uint64_t>(described.memory_mb * kBytesPerMegabyte)
                          : gpu.value().memory_bytes;
  return Found{gpu.value(), machine.cuda[gpu.value().number], memory};
}

Status GpuDevices::ensure_mps_directory() {
  if (!environment_.mps.directory.empty()) return {};
  auto directory = make_mps_directory();
  if (!directory.ok()) return directory.status();
  environment_.mps.directory = std::move(directory).value();
  return {};
}

Result<GpuDevice> GpuDevices::make_mps(const config::DeviceConfig& described,
                                       std::uint32_t number) {
  const auto found = find(described, number);
  if (!found.ok()) return found.status();
  const auto& [gpu, cuda, memory_bytes] = found.value();
  if (Status ready = ensure_mps_directory(); !ready.ok()) return ready;
  auto driver =
      partition::make_mps_driver({.uuid = gpu.uuid,
                                  .memory_bytes = memory_bytes,
                                  .sms = cuda.sms.ok() ? cuda.sms.value() : 0,
                                  .max_clients = max_clients_of(machine_->value().driver_version)},
                                 environment_.mps);
  if (!driver.ok()) return driver.status().within(gpu.uuid);
  used_.insert(gpu.uuid);
  return GpuDevice{gpu.uuid, std::move(driver).value(), memory_bytes};
}

Result<GpuDevice> GpuDevices::make_green(const config::DeviceConfig& described,
                                         std::uint32_t number) {
  const auto found = find(described, number);
  if (!found.ok()) return found.status();
  const auto& [gpu, cuda, memory_bytes] = found.value();
  if (!cuda.groups.ok()) return cuda.groups.status().within(gpu.uuid);
  const partition::GreenGpu divided{gpu.uuid, cuda.groups.value()};
  for (const Share size : described.sizes) {
    if (Status possible = partition::check_green_size(divided, size); !possible.ok())
      return possible;
  }
  used_.insert(gpu.uuid);
  return GpuDevice{gpu.uuid, partition::make_green_driver(divided), memory_bytes};
}

Result<GpuDevice> GpuDevices::make_mig(const config::DeviceConfig& described,
                                       std::uint32_t number) {
  if (!described.geometry) {
    return Status(StatusCode::invalid,
                  "a device that is divided by MIG needs a geometry; add \"geometry\"");
  }
  const auto found = find(described, number);
  if (!found.ok()) return found.status();
  const auto& [gpu, cuda, memory_bytes] = found.value();
  if (described.processes_per_instance > 1) {
    if (Status ready = ensure_mps_directory(); !ready.ok()) return ready;
  }
  auto driver =
      partition::make_mig_driver({gpu.uuid, *described.geometry, described.processes_per_instance},
                                 environment_.nvml, environment_.mps);
  if (!driver.ok()) return driver.status();
  used_.insert(gpu.uuid);
  return GpuDevice{gpu.uuid, std::move(driver).value(), memory_bytes};
}

}  // namespace gpulet::backend
