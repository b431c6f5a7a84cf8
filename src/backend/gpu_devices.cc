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

#include "gpulet/core/megabytes.h"
#include "gpulet/partition/drivers/green.h"
#include "gpulet/partition/drivers/mig.h"
#include "gpulet/partition/drivers/mps.h"

namespace gpulet::backend {
namespace {

// MPS takes 48 contexts of a GPU, and 60 since CUDA 13.1, whose driver is this one.
constexpr std::uint32_t kClients = 48;
constexpr std::uint32_t kMoreClients = 60;
constexpr unsigned kDriverOfMoreClients = 590;

std::uint32_t clients_of(const std::string& driver_version) {
  unsigned major = 0;
  std::from_chars(driver_version.data(), driver_version.data() + driver_version.size(), major);
  return major >= kDriverOfMoreClients ? kMoreClients : kClients;
}

// Sockets in a folder that somebody else may write to would be somebody else's.
Result<std::filesystem::path> own_folder() {
  const auto user = ::geteuid();
  const char* const runtime = ::getenv("XDG_RUNTIME_DIR");  // NOLINT(concurrency-mt-unsafe)
  std::error_code ignored;
  std::filesystem::path folder = "/run/gpulet-mps";
  if (user != 0) {
    folder = runtime != nullptr && *runtime != 0 ? std::filesystem::path(runtime) / "gpulet-mps"
                                                 : std::filesystem::temp_directory_path(ignored) /
                                                       ("gpulet-mps-" + std::to_string(user));
  }
  // Root's clients are of another user, who must find the sockets in it.
  const mode_t mode = user == 0 ? 0711 : 0700;
  struct stat found {};
  if (::mkdir(folder.c_str(), mode) != 0 && errno != EEXIST) {
    return Status(StatusCode::unavailable,
                  "cannot make the folder " + folder.string() + " for MPS: " + ::strerror(errno));
  }
  const bool is_mine = ::lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
                       found.st_uid == user && (found.st_mode & 0022U) == 0;
  if (!is_mine) {
    return Status(StatusCode::unavailable, "the folder " + folder.string() +
                                               " for MPS is writable for others than user " +
                                               std::to_string(user) + "; remove it");
  }
  return folder;
}

}  // namespace

Result<GpuDevices::Machine> GpuDevices::look(const GpuPlaces& places) {
  const auto library = gpu::Nvml::load(places.nvml);
  if (!library.ok()) return library.status();
  auto gpus = library.value().gpus();
  if (!gpus.ok()) return gpus.status();
  const auto version = library.value().driver_version();
  Machine machine{std::move(gpus).value(), {}, version.ok() ? version.value() : std::string()};
  std::vector<std::string> uuids;
  for (const auto& gpu : machine.gpus) uuids.push_back(gpu.uuid);
  if (!uuids.empty()) machine.cuda = gpu::ask_cuda({.uuids = uuids, .library = places.cuda});
  return machine;
}

Result<GpuDevices::Found> GpuDevices::find(const config::DeviceConfig& described,
                                           std::uint32_t number) {
  if (!machine_) machine_.emplace(look(places_));
  if (!machine_->ok()) return machine_->status();
  const auto& machine = machine_->value();
  const auto gpu =
      gpu::choose_gpu(machine.gpus, described.gpu.empty() ? std::to_string(number) : described.gpu);
  if (!gpu.ok()) return gpu.status();
  const auto& name = gpu.value().uuid;
  if (gpu.value().mig_enabled && described.partitioning != "mig") {
    return Status(StatusCode::unavailable, name + " is in MIG mode, in which " +
                                               described.partitioning +
                                               " has no whole GPU to divide; serve with another "
                                               "GPU, or divide this one by mig");
  }
  if (!gpu.value().shareable) {
    return Status(StatusCode::unavailable,
                  name +
                      " takes no processes: its compute mode is prohibited; set another "
                      "(nvidia-smi -c)");
  }
  if (taken_.contains(name)) {
    return Status(StatusCode::invalid, name +
                                           " is another device of this file already; two "
                                           "would each divide all of it");
  }
  const auto memory = described.memory_mb > 0
                          ? static_cast<std::uint64_t>(described.memory_mb * kBytesPerMegabyte)
                          : gpu.value().memory_bytes;
  return Found{gpu.value(), machine.cuda[gpu.value().number], memory};
}

Status GpuDevices::find_mps_directory() {
  if (!places_.mps.directory.empty()) return {};
  auto folder = own_folder();
  if (!folder.ok()) return folder.status();
  places_.mps.directory = std::move(folder).value();
  return {};
}

Result<GpuDevice> GpuDevices::make_mps(const config::DeviceConfig& described,
                                       std::uint32_t number) {
  const auto found = find(described, number);
  if (!found.ok()) return found.status();
  const auto& [gpu, cuda, memory_bytes] = found.value();
  if (Status ready = find_mps_directory(); !ready.ok()) return ready;
  auto driver =
      partition::make_mps_driver({.uuid = gpu.uuid,
                                  .memory_bytes = memory_bytes,
                                  .sms = cuda.sms.ok() ? cuda.sms.value() : 0,
                                  .max_clients = clients_of(machine_->value().driver_version)},
                                 places_.mps);
  if (!driver.ok()) return driver.status().within(gpu.uuid);
  taken_.insert(gpu.uuid);
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
  taken_.insert(gpu.uuid);
  return GpuDevice{gpu.uuid, partition::make_green_driver(divided), memory_bytes};
}

Result<GpuDevice> GpuDevices::make_mig(const config::DeviceConfig& described,
                                       std::uint32_t number) {
  if (!described.geometry) {
    return Status(StatusCode::invalid,
                  "a device that is divided by MIG takes a geometry; name one (\"geometry\")");
  }
  const auto found = find(described, number);
  if (!found.ok()) return found.status();
  const auto& [gpu, cuda, memory_bytes] = found.value();
  if (described.processes_per_instance > 1) {
    if (Status ready = find_mps_directory(); !ready.ok()) return ready;
  }
  auto driver = partition::make_mig_driver(
      {gpu.uuid, *described.geometry, described.processes_per_instance}, places_.nvml, places_.mps);
  if (!driver.ok()) return driver.status();
  taken_.insert(gpu.uuid);
  return GpuDevice{gpu.uuid, std::move(driver).value(), memory_bytes};
}

}  // namespace gpulet::backend
